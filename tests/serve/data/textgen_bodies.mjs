// Prints the bodies that SillyTavern's page makes for each type of program: the page's own code, without the page.
// Usage: node textgen_bodies.mjs FOLDER_OF_SILLYTAVERN < settings.json, a list of {type, settings}
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const folder = process.argv[2];
const keys = await import(pathToFileURL(path.join(folder, 'src/constants.js')));
const source = fs.readFileSync(path.join(folder, 'public/scripts/textgen-settings.js'), 'utf8')
    .replace(/^import [\s\S]*?;$/gm, '')
    .replace(/^export \{[\s\S]*?\};$/gm, '')
    .replace(/^export /gm, '');

const block = fs.readFileSync(path.join(folder, 'public/index.html'), 'utf8').match(/data-tg-type="([^"]*)"[^>]*id="dynatemp_block_ooba"/);

// What the code takes from the page and from other modules. Macros are left as they are.
const page = `
const nothing = () => {};
const max_context = 1024, main_api = 'textgenerationwebui';
const power_user = { request_token_probabilities: true };
const localStorage = { getItem: () => null };
const document = { getElementById: () => ({ dataset: { tgType: ${JSON.stringify(block[1])} } }) };
const BIAS_CACHE = new Map(), registerDebugFunction = nothing, eventSource = { on: nothing }, event_types = {};
const getStoppingStrings = () => ['\\nUser:'];
const substituteParams = (text) => text;
const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const arraysEqual = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const onlyUnique = (value, index, array) => array.indexOf(value) === index;
const AbortReason = {}, tokenizers = {}, ENCODE_TOKENIZERS = [], TEXTGEN_TOKENIZERS = [], SECRET_KEYS = {};
const toastr = { error: nothing, warning: nothing }, t = (parts) => parts.join('');
const getTextTokens = () => [], getTokenizerBestMatch = () => 0;
const $ = () => ({ val: nothing });
`;
const make = new Function(`${page}${source}; return { settings: textgenerationwebui_settings, createTextGenGenerationData };`);
const { settings: defaults, createTextGenGenerationData } = make();

// As src/endpoints/backends/text-completions.js sends them.
const KEYS_OF_TYPE = {
    togetherai: keys.TOGETHERAI_KEYS, infermaticai: keys.INFERMATICAI_KEYS, featherless: keys.FEATHERLESS_KEYS,
    generic: keys.OPENAI_KEYS, openrouter: keys.OPENROUTER_KEYS, vllm: keys.VLLM_KEYS,
};
const requests = JSON.parse(fs.readFileSync(0, 'utf8'));
const bodies = requests.map(({ type, settings }) => {
    const body = JSON.parse(JSON.stringify({
        ...createTextGenGenerationData({ ...defaults, ...settings, type }, 'undefined', 'The sea was', 12),
        stream: false,
    }));
    const known = KEYS_OF_TYPE[type];
    return known ? Object.fromEntries(Object.entries(body).filter(([key]) => known.includes(key))) : body;
});
process.stdout.write(JSON.stringify(bodies));
