// Requests to the server: the key, errors, streams of lines, and whether the server answers.

const KEY_NAME = "gen-key";
const POLL_MILLISECONDS = 2000;
const POLL_TIMEOUT = 2500;
const JSON_STRINGS_AND_NUMBERS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Return the address of a path of the server, which may stand below a prefix, as the page does. */
const address = (path) => new URL(`.${path}`, document.baseURI);

/** The server refused a request. `body` is its answer, whose sentence is the message, and `status` its HTTP status. */
export class RequestError extends Error {
  constructor(body, status) {
    super(body?.error?.message ?? `The server answered with status ${status}.`);
    this.body = body;
    this.status = status;
  }
}

/** No answer came: the server is gone, or the network. */
export class LostError extends Error {}

/**
 * The server. `watch` is called with its state when the state changes: `connecting`, `ready`, `loading` (the model is
 * loaded), `stopping`, `lost`, or `locked` (a key is needed).
 */
export class Server {
  constructor(watch) {
    this.watch = watch;
    this.state = "connecting";
    this.isPolling = false;
  }

  /** The key of the server. It is kept in this tab only, and is part of no address and no file. */
  get key() {
    return sessionStorage.getItem(KEY_NAME);
  }

  set key(value) {
    if (value) sessionStorage.setItem(KEY_NAME, value);
    else sessionStorage.removeItem(KEY_NAME);
  }

  become(state) {
    if (state === this.state) return;
    this.state = state;
    this.watch(state);
  }

  /** Ask for the state of the server from now on. */
  start() {
    const poll = async () => {
      await this.check();
      setTimeout(poll, POLL_MILLISECONDS);
    };
    poll();
  }

  /** Ask for the state of the server once. */
  async check() {
    try {
      const response = await fetch(address("/health"), { cache: "no-store", signal: AbortSignal.timeout(POLL_TIMEOUT) });
      const text = await response.text();
      if (response.status === 503) this.become(text.includes("stopping") ? "stopping" : "loading");
      else if (this.state !== "locked") this.become("ready");
    } catch {
      this.become("lost");
    }
  }

  /** Send a request; return the response. Raises `LostError`, `RequestError`, and the error of `options.signal`. */
  async send(path, body, options) {
    return this.sendText(path, body === undefined ? undefined : JSON.stringify(body), "application/json", options);
  }

  /** Send objects, each as a line; return the response. Raises `LostError` and `RequestError`. */
  async sendLines(path, objects) {
    return this.sendText(path, new Blob(objects.map((object) => `${JSON.stringify(object)}\n`)), "application/x-ndjson");
  }

  /** Send a text or a file. `options`: `signal`, and `method` if it is another one than GET or POST. */
  async sendText(path, body, type, { signal, method = body === undefined ? "GET" : "POST" } = {}) {
    const headers = body === undefined ? {} : { "content-type": type };
    if (this.key) headers.authorization = `Bearer ${headerText(this.key)}`;
    let response;
    try {
      const request = { method, headers, body, cache: "no-store", signal };
      response = await fetch(address(path), request);
    } catch (error) {
      if (signal?.aborted) throw error;
      this.become("lost");
      throw new LostError("The server does not answer.");
    }
    if (response.ok) return response;
    if (response.status === 401) this.become("locked");
    throw new RequestError(await response.json().catch(() => null), response.status);
  }

  /** Send a request; return the JSON of the answer. */
  async json(path, body, options) {
    const response = await this.send(path, body, options);
    return parseJson(await response.text());
  }

  /** Send a request; yield the objects of the answer's lines as they arrive. */
  async *lines(path, body, signal) {
    const response = await this.send(path, body, { signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    try {
      while (true) {
        let part;
        try {
          part = await reader.read();
        } catch (error) {
          if (signal?.aborted) throw error;
          this.become("lost");
          throw new LostError("The server went away while it was writing.");
        }
        if (part.done) return;
        const lines = (rest + part.value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          const event = JSON.parse(line);
          if (event.event === "error") throw new RequestError(event, 200);
          yield event;
        }
      }
    } finally {
      reader.cancel().catch(() => {}); // whoever reads no further lines ends the request
    }
  }
}

/**
 * Return the value of a JSON text. Integers that a number of JavaScript would round, such as keys of 64 bits, become
 * texts of their digits.
 */
export function parseJson(text) {
  return JSON.parse(text.replace(JSON_STRINGS_AND_NUMBERS, (part) => (isRounded(part) ? `"${part}"` : part)));
}

/** Return whether a text is an integer that a number of JavaScript would round. */
export function isRounded(text) {
  return /^-?\d{16,}$/.test(text) && !Number.isSafeInteger(Number(text));
}

/** Return a text as a header can have it: each character is a byte of its UTF-8. */
function headerText(text) {
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
}

/**
 * Return a function that calls another one after a pause without further calls, or `longest` after the first of them. Its
 * method `settled` makes a call that is due immediately, and waits for its end.
 */
export function afterPause(milliseconds, work, longest = Infinity) {
  let timer = null;
  let first; // when the first call was that waits
  let latest;
  const run = () => {
    timer = null;
    latest = work();
    return latest;
  };
  const call = () => {
    if (timer === null) first = performance.now();
    clearTimeout(timer);
    timer = setTimeout(run, Math.min(milliseconds, first + longest - performance.now()));
  };
  call.settled = async () => {
    if (timer === null) return latest;
    clearTimeout(timer);
    return run();
  };
  return call;
}

/** Calls of a function of which only the last one matters: while one runs, the next one waits, and replaces others. */
export class LatestOnly {
  constructor(work) {
    this.work = work;
    this.isRunning = false;
    this.isWaiting = false;
  }

  async call() {
    if (this.isRunning) {
      this.isWaiting = true;
      return;
    }
    this.isRunning = true;
    try {
      do {
        this.isWaiting = false;
        await this.work();
      } while (this.isWaiting);
    } finally {
      this.isRunning = false;
    }
  }
}
