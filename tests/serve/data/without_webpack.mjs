// Starts SillyTavern without the compilation of its page's libraries, which takes a minute. Only a browser needs them.
import { register } from 'node:module';

const webpack = `
export default () => ({ run: (callback) => callback(null, null), close: (callback) => callback() });
`;
const hooks = `
export const resolve = (name, context, next) => name === 'webpack'
    ? { url: ${JSON.stringify('data:text/javascript,' + encodeURIComponent(webpack))}, shortCircuit: true }
    : next(name, context);
`;
register('data:text/javascript,' + encodeURIComponent(hooks));
