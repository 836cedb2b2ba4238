// Clicks on their way to the server. Each is written to localStorage before anything else happens, and removed only when the
// server has said that it is kept. Every click has an entry of its own, so that two tabs never overwrite each other's.

const PAUSES = [300, 700, 1500, 3000, 6000];
const MOST = 50;

export class Queue {
  constructor(token, told) {
    this.token = token;
    this.told = told;             // called with {waiting, state, refused}
    this.prefix = `sorites:${token.slice(0, 12)}:`;
    this.memory = new Map();      // for a browser without storage
    this.failures = 0;
    this.sending = false;
    this.timer = null;
    this.number = 0;
    addEventListener("online", () => this.retry());
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.retry(); });
  }

  add(click) {
    const id = randomId();
    const key = `${this.prefix}${String(Date.now()).padStart(15, "0")}:${String(this.number++).padStart(6, "0")}:${id}`;
    const text = JSON.stringify({ ...click, id });
    try { localStorage.setItem(key, text); } catch { this.memory.set(key, text); }
    this.send();
    return id;
  }

  entries() {
    const found = [];
    try {
      for (let i = 0; i < localStorage.length; i++) {
        const key = localStorage.key(i);
        if (key && key.startsWith(this.prefix)) found.push([key, localStorage.getItem(key)]);
      }
    } catch { /* a browser without storage */ }
    found.push(...this.memory);
    return found.sort((a, b) => (a[0] < b[0] ? -1 : 1)).map(([key, text]) => [key, JSON.parse(text)]);
  }

  waiting() { return this.entries().map(([, click]) => click); }

  retry() { clearTimeout(this.timer); this.timer = null; this.failures = 0; this.send(); }

  async send() {
    if (this.sending || this.timer) { this.tell(); return; }
    this.sending = true;
    try {
      for (let some = this.entries().slice(0, MOST); some.length; some = this.entries().slice(0, MOST)) {
        this.tell();
        await this.post(some);
        this.failures = 0;
      }
      this.state = "saved";
    } catch (error) {
      this.state = error.final ? "refused" : "waiting";
      if (!error.final) this.timer = setTimeout(() => { this.timer = null; this.send(); }, PAUSES[Math.min(this.failures++, PAUSES.length - 1)]);
    } finally {
      this.sending = false;
      this.tell();
    }
  }

  async post(some) {
    const answer = await asked("api/clicks", this.token, { method: "POST", body: JSON.stringify({ clicks: some.map(([, click]) => click) }) });
    const done = new Set([...answer.kept, ...Object.keys(answer.refused)]);
    for (const [key, click] of some) {
      if (done.has(click.id)) { this.memory.delete(key); try { localStorage.removeItem(key); } catch { /* no storage */ } }
    }
    const reasons = Object.values(answer.refused);
    if (reasons.length) this.told({ refused: reasons[0] });
    if (!done.size) throw new Error("nothing was kept");
  }

  tell() { this.told({ waiting: this.entries().length, state: this.state || "saved" }); }
}

// crypto.randomUUID exists only on secure origins; this works on any.
export function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export async function response(path, token, options = {}) {
  const headers = { Authorization: `Bearer ${token}`, ...(options.body ? { "Content-Type": "application/json" } : {}) };
  const control = new AbortController();
  const limit = setTimeout(() => control.abort(), 20000);
  try {
    const found = await fetch(path, { ...options, headers, signal: control.signal, cache: "no-store", credentials: "omit" });
    if (found.ok) return { found, body: await found.blob() };
    const error = new Error((await found.json().catch(() => ({}))).error || `the server said ${found.status}`);
    error.status = found.status;
    error.final = found.status < 500 && found.status !== 429;
    throw error;
  } finally { clearTimeout(limit); }
}

export async function asked(path, token, options) {
  const { body } = await response(path, token, options);
  return JSON.parse(await body.text());
}
