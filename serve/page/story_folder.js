// The stories in a folder of the server, if it has one.

import { RequestError } from "./server.js";

const CONFLICT = 409;
const MISSING = 404;

/** Return whether a story of the folder is another one than the page knows, or is gone. */
export function isOvertaken(error) {
  return error instanceof RequestError && [CONFLICT, MISSING].includes(error.status);
}

function addressOf(name) {
  return `/gen/stories/${encodeURIComponent(name)}`;
}

/** The folder. A file is `{name, version}`. */
export class StoryFolder {
  constructor(server) {
    this.server = server;
    this.isThere = false;
  }

  /** Return the stories of the folder; none if the server has no folder. */
  async list() {
    try {
      const { stories } = await this.server.json("/gen/stories");
      this.isThere = true;
      return stories;
    } catch (error) {
      if (error.status !== MISSING) throw error;
      this.isThere = false;
      return [];
    }
  }

  /** Return a story: `{name, version, text, data}`. */
  async read(name) {
    return (await this.server.send(addressOf(name))).json();
  }

  /** Write a story: a new one if there is no file. Return its file. Raises an error that `isOvertaken` if it has changed. */
  async write(file, title, text, data) {
    const { name, version } = file
      ? await this.server.json(addressOf(file.name), { text, data, version: file.version }, { method: "PUT" })
      : await this.server.json("/gen/stories", { title, text, data });
    return { name, version };
  }

  async delete({ name, version }) {
    await this.server.json(`${addressOf(name)}?version=${version}`, undefined, { method: "DELETE" });
  }
}
