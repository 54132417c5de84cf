// The stories in IndexedDB. A story is open in one tab only, and nothing replaces what another tab has stored.

const DATABASE = "gen-stories";
const STORES = ["stories", "states", "tokens"];
const LOCK_WAIT_MILLISECONDS = 600;
const DAY = 86_400_000;
const DAYS_OF_DELETED = 30;
const DAYS_OF_EMPTY = 1;

/** Another tab has stored the story since this one has read it. */
export class TakenError extends Error {}

/** Return a promise for the result of a request of IndexedDB. */
function resultOf(request) {
  return new Promise((resolve, reject) => {
    request.addEventListener("success", () => resolve(request.result));
    request.addEventListener("error", () => reject(request.error));
  });
}

function endOf(transaction) {
  return new Promise((resolve, reject) => {
    transaction.addEventListener("complete", () => resolve());
    transaction.addEventListener("abort", () => reject(transaction.error));
  });
}

/**
 * Return a new story for the list. `title` is null until a person gives it one; `file` is its name and version in the
 * folder of the server, and whether it `isChanged` since; `isOwed`: it is to get a file; `revision` counts how often it
 * was stored.
 */
export function newStory(facts = {}) {
  const id = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { title: null, when: Date.now(), words: 0, text: "", isEmpty: true, deleted: null, file: null, isOwed: false, ...facts, id, revision: 0 };
}

function lockName(id) {
  return `gen-story-${id}`;
}

/** The stories of this browser. Without IndexedDB, as in some private windows, nothing is kept. */
export class StoryStore {
  constructor(database) {
    this.database = database;
    this.saved = new Set(); // the numbers of the tokens that are stored, of the story that this tab has taken
    this.release = null; // ends the lock of that story
    this.writing = null; // the transaction of the last story that was written
  }

  static async open() {
    let database = null;
    try {
      database = await openDatabase();
    } catch {
      return new StoryStore(null);
    }
    const store = new StoryStore(database);
    store.purge();
    return store;
  }

  get canKeep() {
    return this.database !== null;
  }

  /** Take a story for this tab, until it takes another one. Return false if another tab has it. */
  async take(id) {
    const hasLock = !navigator.locks || (await new Promise((resolve) => { // pages without a secure origin have no locks
      navigator.locks.request(lockName(id), { signal: AbortSignal.timeout(LOCK_WAIT_MILLISECONDS) }, () => {
        resolve(true);
        return new Promise((release) => {
          this.release?.();
          this.release = release;
        });
      }).catch(() => resolve(false));
    }));
    if (hasLock) this.saved = new Set();
    return hasLock;
  }

  /** Return the ids of the stories that tabs have taken. */
  async taken() {
    const { held } = (await navigator.locks?.query()) ?? { held: [] };
    return new Set(held.map(({ name }) => name.replace(lockName(""), "")));
  }

  /** Return the stories for the list, those that were changed last first. */
  async list() {
    if (!this.database) return [];
    const stories = await resultOf(this.database.transaction("stories").objectStore("stories").getAll());
    return stories.toSorted((first, second) => second.when - first.when);
  }

  /** Return a story with its state, and the tokens by their numbers; null if there is none. */
  async read(id) {
    if (!this.database) return null;
    const transaction = this.database.transaction(STORES);
    const [story, stored, chunks] = await Promise.all([
      resultOf(transaction.objectStore("stories").get(id)), resultOf(transaction.objectStore("states").get(id)),
      resultOf(transaction.objectStore("tokens").getAll(rangeOf(id)))]);
    if (!story || !stored) return null;
    return { story, state: { ...stored.state, tokens: new Map(chunks.flatMap(({ tokens }) => tokens.map((token) => [token.uid, token]))) } };
  }

  /** Say that this tab has read the tokens of a story, and need not store them again. */
  keepTokens(tokens) {
    this.saved = new Set(tokens.keys());
  }

  /**
   * Store a story with its state. Tokens never change, so that only those are written whose numbers are not `saved`.
   * Raises `TakenError`. `isLast`: the tab goes away, and waits for no answer.
   */
  async write(story, state, tokens, { saved = this.saved, isLast = false } = {}) {
    if (!this.database) return;
    const { revision } = story;
    if (isLast) this.giveUpWriting();
    const transaction = this.database.transaction(STORES, "readwrite");
    this.writing = transaction;
    const ended = endOf(transaction);
    ended.catch(() => {}); // it is awaited below
    if (!isLast || !this.release) {
      const stored = await resultOf(transaction.objectStore("stories").get(story.id));
      if ((stored?.revision ?? 0) !== revision) {
        transaction.abort();
        throw new TakenError();
      }
    }
    const added = Array.from(tokens.values()).filter(({ uid }) => !saved.has(uid));
    if (added.length) transaction.objectStore("tokens").put({ story: story.id, uid: added[0].uid, tokens: added });
    transaction.objectStore("states").put({ id: story.id, state });
    transaction.objectStore("stories").put({ ...story, revision: revision + 1 });
    transaction.commit(); // a tab that goes away before would take it back
    await ended;
    story.revision = revision + 1;
    for (const { uid } of added) saved.add(uid);
  }

  /** End what is being written: what a tab writes at last would wait for it, and be lost with the tab. */
  giveUpWriting() {
    try {
      this.writing?.abort();
    } catch {
      // it has ended
    }
  }

  /** Change facts of a story in the list. */
  async change(id, facts) {
    if (!this.database) return;
    const transaction = this.database.transaction("stories", "readwrite");
    const stories = transaction.objectStore("stories");
    const story = await resultOf(stories.get(id));
    if (story) stories.put({ ...story, ...facts });
    await endOf(transaction);
  }

  /** Remove stories that were deleted long ago, and those that have stayed empty. */
  async purge() {
    const [stories, taken] = await Promise.all([this.list(), this.taken()]);
    const isOld = ({ deleted, when, isEmpty, title }) => (deleted === null
      ? isEmpty && title === null && when < Date.now() - DAYS_OF_EMPTY * DAY
      : deleted < Date.now() - DAYS_OF_DELETED * DAY);
    for (const story of stories.filter((other) => isOld(other) && !taken.has(other.id))) {
      const transaction = this.database.transaction(STORES, "readwrite");
      for (const name of ["stories", "states"]) transaction.objectStore(name).delete(story.id);
      transaction.objectStore("tokens").delete(rangeOf(story.id));
    }
  }
}

function rangeOf(id) {
  return IDBKeyRange.bound([id, 0], [id, Infinity]);
}

async function openDatabase() {
  const request = indexedDB.open(DATABASE, 1);
  request.addEventListener("upgradeneeded", () => {
    for (const name of ["stories", "states"]) request.result.createObjectStore(name, { keyPath: "id" });
    request.result.createObjectStore("tokens", { keyPath: ["story", "uid"] });
  });
  return resultOf(request);
}

/** Return the number of words, as the server counts them. */
export function wordsOf(text) {
  return text.split(/\s+/).filter(Boolean).length;
}
