// The state of a tab in IndexedDB, under the tab's own id, so that several tabs do not disturb each other.

const TAB_NAME = "gen-tab";
const DATABASE = "gen-page";
const MAX_AGE_DAYS = 30;
const LOCK_WAIT_MILLISECONDS = 600;

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
    transaction.addEventListener("error", () => reject(transaction.error));
  });
}

function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function lockName(id) {
  return `gen-tab-${id}`;
}

/** Keep a lock until the tab is closed. Return false if another tab has it. */
async function holdLock(name) {
  if (!navigator.locks) return true; // only on pages without a secure origin
  return new Promise((resolve) => {
    navigator.locks.request(name, { signal: AbortSignal.timeout(LOCK_WAIT_MILLISECONDS) }, () => {
      resolve(true);
      return new Promise(() => {});
    }).catch(() => resolve(false));
  });
}

/** The store of this tab. Without IndexedDB, as in some private windows, nothing is kept. */
export class TabStore {
  constructor(database, id) {
    this.database = database;
    this.id = id;
    this.saved = new Set(); // the numbers of the tokens that are stored
  }

  /**
   * Open the store, and read the state of this tab. A duplicated tab has the id of the first one: it takes a copy of the
   * state under a new id. Return the store, and the state or null.
   */
  static async open() {
    let database = null;
    try {
      database = await openDatabase();
    } catch {
      return [new TabStore(null, newId()), null];
    }
    const previous = sessionStorage.getItem(TAB_NAME);
    const isOwn = previous !== null && (await holdLock(lockName(previous)));
    const id = isOwn ? previous : newId();
    if (!isOwn) await holdLock(lockName(id));
    sessionStorage.setItem(TAB_NAME, id);
    const store = new TabStore(database, id);
    const state = previous === null ? null : await store.read(previous);
    if (isOwn && state) for (const uid of state.tokens.keys()) store.saved.add(uid);
    store.deleteOld();
    return [store, state];
  }

  async read(id) {
    const transaction = this.database.transaction(["tabs", "tokens"]);
    const tab = await resultOf(transaction.objectStore("tabs").get(id));
    if (!tab) return null;
    const tokens = await resultOf(transaction.objectStore("tokens").getAll(rangeOf(id)));
    return { ...tab.state, tokens: new Map(tokens.map(({ token }) => [token.uid, token])) };
  }

  /** Return the states of tabs that are closed, those that were used last first: `{id, when, state}`. */
  async closedTabs() {
    if (!this.database) return [];
    const tabs = await resultOf(this.database.transaction("tabs").objectStore("tabs").getAll());
    const locks = navigator.locks ? await navigator.locks.query() : { held: [] };
    const open = new Set(locks.held.map(({ name }) => name));
    const closed = tabs.filter(({ id }) => id !== this.id && !open.has(lockName(id))).toSorted((first, second) => second.when - first.when);
    return Promise.all(closed.map(async ({ id, when }) => ({ id, when, state: await this.read(id) })));
  }

  /** Store a state. Tokens never change, so that only new ones are written. */
  async write(state, tokens) {
    if (!this.database) return;
    const transaction = this.database.transaction(["tabs", "tokens"], "readwrite");
    const store = transaction.objectStore("tokens");
    const added = [];
    for (const [uid, token] of tokens) {
      if (this.saved.has(uid)) continue;
      store.put({ tab: this.id, uid, token });
      added.push(uid);
    }
    transaction.objectStore("tabs").put({ id: this.id, when: Date.now(), state });
    await endOf(transaction);
    for (const uid of added) this.saved.add(uid);
  }

  /** Delete the states of tabs that were not used for a long time. */
  async deleteOld() {
    const tabs = await resultOf(this.database.transaction("tabs").objectStore("tabs").getAll());
    const oldest = Date.now() - MAX_AGE_DAYS * 86_400_000;
    for (const { id, when } of tabs) {
      if (when >= oldest || id === this.id) continue;
      const transaction = this.database.transaction(["tabs", "tokens"], "readwrite");
      transaction.objectStore("tabs").delete(id);
      transaction.objectStore("tokens").delete(rangeOf(id));
    }
  }
}

function rangeOf(id) {
  return IDBKeyRange.bound([id, 0], [id, Infinity]);
}

async function openDatabase() {
  const request = indexedDB.open(DATABASE, 1);
  request.addEventListener("upgradeneeded", () => {
    request.result.createObjectStore("tabs", { keyPath: "id" });
    request.result.createObjectStore("tokens", { keyPath: ["tab", "uid"] });
  });
  return resultOf(request);
}
