// A model and what it says of the text. Whatever comes from a text or a model is set as text, never as HTML.

const TOP = 12;
const digits = (share) => share.toFixed(2);
const signed = (change) => `${change < 0 ? "▼ −" : "▲ +"}${digits(Math.abs(change))}`;
const highest = (word) => Math.max(...word.replaced_probability);
/** A token as it is written within a word: WordPiece's ##, and the marks of other tokenizers, go. */
const plain = (token) => token.replace(/^(##|Ġ|▁)/u, "");
const isSpecial = (token) => /^\[[^\]]+\]$/u.test(token);
const isWord = (token, word) => [word.text, word.text.toLowerCase()].includes(token);

function made(name, { of = "", text = null, share = null } = {}) {
  const element = document.createElement(name);
  if (of) element.className = of;
  if (text !== null) element.textContent = text;
  if (share !== null) element.style.setProperty("--p", share);
  return element;
}

function number(share, shown = digits(share)) {
  const element = made("data", { text: shown });
  element.value = share;
  return element;
}

/** Which word of `before` each word of `now` was: equal ones from both ends; between them only where as many are left. */
function partners(before, now) {
  const same = (one, two) => one !== undefined && two !== undefined && one.text === two.text;
  const shortest = Math.min(before.length, now.length);
  let head = 0, tail = 0;
  while (head < shortest && same(before[head], now[head])) head++;
  while (tail < shortest - head && same(before[before.length - 1 - tail], now[now.length - 1 - tail])) tail++;
  const moved = before.length - now.length;
  return now.map((_, at) => (at < head || moved === 0 ? before[at] : at >= now.length - tail ? before[at + moved] : undefined));
}

class Panel {
  constructor(model, index, page) {
    Object.assign(this, { model, index, page, engine: page.engine });
    this.element = document.getElementById(model.kind).content.cloneNode(true).firstElementChild;
    this.find("h2").textContent = model.name;
    this.find("h2").id = `model-${index}`;
    this.element.setAttribute("aria-labelledby", `model-${index}`);
    this.find(".about").textContent = model.about;
    this.words = this.find(".words");
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  /** The text has changed, and is read in a moment. */
  typed() {
    this.element.setAttribute("aria-busy", "true");
  }

  /** The text is read, or the library's sentence on why not is shown; returns a line for those who cannot see it. */
  async read(text, second, options) {
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    this.element.setAttribute("aria-busy", "true");
    const error = this.find(".error");
    try {
      const answer = await this.ask(text, second, signal);
      if (signal.aborted) return "";
      error.hidden = true;
      const line = this.show(answer, options);
      return this.page.only ? line : `${this.model.name}: ${line}`;
    } catch (fault) {
      if (signal.aborted) return "";
      this.clear();
      error.textContent = fault.message;
      error.hidden = false;
      return "";
    } finally {
      if (!signal.aborted) this.element.removeAttribute("aria-busy");
    }
  }
}

/** Words with the probability that they were replaced, and the generator's candidates for one of them. */
export class PretrainedPanel extends Panel {
  constructor(model, index, page) {
    super(model, index, page);
    Object.assign(this, { step: model.step ?? null, said: [], after: "", open: null });
    this.list = this.find(".candidates");
    this.words.setAttribute("aria-label", "Words, each with the probability that it was replaced");
    this.find(".legend").hidden = !model.scores;
    if (!model.scores) this.find(".about").textContent += ". It has no discriminator: it fills words and scores none.";
    this.addSlider(model.steps);
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.open !== null) this.close({ focus: true });
    });
  }

  addSlider(steps) {
    if (steps.length < 2) return;
    const slider = this.find(".steps input"), label = this.find(".steps label"), which = this.find(".steps .which");
    this.find(".steps").hidden = false;
    slider.id = `step-${this.index}`;
    label.htmlFor = slider.id;
    label.textContent = "Step";
    slider.max = steps.length - 1;
    slider.value = Math.max(steps.indexOf(this.step), 0);
    const shown = () => {
      this.step = steps[slider.value];
      which.textContent = `${this.step.toLocaleString("en")} of ${steps.at(-1).toLocaleString("en")}`;
      slider.setAttribute("aria-valuetext", `step ${this.step}`);
    };
    shown();
    slider.addEventListener("input", async () => {
      shown();
      this.close();
      if (this.text) await this.read(this.text, "", { compare: true });
    });
  }

  ask(text, second, signal) {
    this.text = text;
    return this.engine.score(this.index, this.step, text, signal);
  }

  typed() {
    super.typed();
    this.close();
  }

  clear() {
    this.said = [];
    this.words.replaceChildren();
    this.close();
  }

  show({ words, after }, { compare }) {
    const before = compare ? partners(this.said, words) : [];
    const scored = words.filter((word) => word.replaced_probability.length);
    const all = scored.flatMap((word) => word.replaced_probability);
    const limit = Math.max(0.2, (2 * all.reduce((sum, share) => sum + share, 0)) / all.length);
    Object.assign(this, { said: words, after });
    this.words.replaceChildren(...words.map((word, at) => this.button(word, at, before[at], limit)));
    if (this.open !== null) this.mark(this.open);
    if (!scored.length) return `${words.length} words.`;
    const most = scored.reduce((one, two) => (highest(two) > highest(one) ? two : one));
    return `${words.length} words. Most likely replaced: ${most.text}, ${digits(highest(most))}.`;
  }

  button(word, at, before, limit) {
    const button = made("button", { of: "word" });
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    const pieces = made("span", { of: "pieces" });
    word.tokens.forEach((token, number_) => {
      const share = word.replaced_probability[number_] ?? null;
      const unknown = token === "[UNK]", suspect = share !== null && share >= limit;
      const piece = made("span", suspect ? { of: "piece suspect", share } : { of: "piece" });
      piece.title = unknown ? "not in the vocabulary" : token;
      piece.append(made("span", { of: "form", text: word.tokens.length === 1 ? word.text : plain(token) }));
      if (share !== null) piece.append(number(share));
      pieces.append(piece);
    });
    button.append(pieces);
    let name = word.text;
    if (word.replaced_probability.length) name += `, replaced ${word.replaced_probability.map(digits).join(" and ")}`;
    if (word.tokens.includes("[UNK]")) name += ", not in the vocabulary";
    const change = before?.replaced_probability.length ? highest(word) - highest(before) : 0;
    if (Math.abs(change) >= 0.005) {
      button.append(made("span", { of: "change", text: signed(change) }));
      name += `, ${change > 0 ? "up" : "down"} ${digits(Math.abs(change))}`;
    }
    button.setAttribute("aria-label", name);
    button.addEventListener("click", () => (this.open === at ? this.close() : this.offer(at)));
    return button;
  }

  mark(at) {
    [...this.words.children].forEach((word, index) => word.setAttribute("aria-expanded", String(index === at)));
  }

  close({ focus = false } = {}) {
    const at = this.open;
    this.looking?.abort();
    this.open = null;
    this.list.hidden = true;
    this.mark(null);
    if (focus) this.words.children[at]?.focus();
  }

  /** The text around a word: up to its blank, and from its end. */
  around(at) {
    const whole = (words) => words.map((word) => word.before + word.text).join("");
    return { left: whole(this.said.slice(0, at)), blank: this.said[at].before, right: whole(this.said.slice(at + 1)) + this.after };
  }

  async offer(at) {
    this.close();
    this.open = at;
    this.mark(at);
    const { signal } = (this.looking = new AbortController());
    const word = this.said[at], place = this.around(at), error = this.list.querySelector(".error"), list = this.list.querySelector("ol");
    this.list.querySelector("h3").textContent = `In place of “${word.text}”`;
    this.list.setAttribute("aria-label", `Candidates in place of ${word.text}`);
    try {
      const written = place.left + place.blank;
      const gap = written.split("[MASK]").length - 1;
      const gaps = await this.engine.fill(this.index, this.step, `${written}[MASK]${place.right}`, TOP, signal);
      if (signal.aborted) return;
      error.hidden = true;
      list.replaceChildren(...gaps[gap].map((one) => this.candidate(one, at, place, word)));
      if (!gaps[gap].some((one) => isWord(one.token, word)))
        list.append(this.candidate({ token: word.text, probability: null }, at, place, word));
    } catch (fault) {
      if (signal.aborted) return;
      list.replaceChildren();
      error.textContent = fault.message;
      error.hidden = false;
    }
    this.list.hidden = false;
  }

  candidate({ token, probability }, at, place, word) {
    const item = made("li"), button = made(isSpecial(token) ? "span" : "button", { of: "share", share: probability ?? 0 });
    const continues = token.startsWith("##");
    button.append(made("span", { text: isSpecial(token) ? token : (continues ? "…" : "") + plain(token) }));
    if (probability === null) button.append(made("span", { of: "faint", text: "as it was" }));
    else button.append(number(probability, probability.toFixed(3)));
    item.append(button);
    if (isSpecial(token)) return item;
    button.type = "button";
    button.setAttribute("aria-pressed", String(isWord(token, word)));
    button.addEventListener("click", async () => {
      for (const other of this.list.querySelectorAll("[aria-pressed]")) other.setAttribute("aria-pressed", String(other === button));
      await this.page.exchanged(place.left + (continues ? "" : place.blank) + plain(token) + place.right, this);
      if (!continues) return;
      this.close(); // it is a part of the word before now
      this.words.children[Math.max(at - 1, 0)]?.focus();
    });
    return item;
  }
}

/** Labels, a value, tags or answers. */
export class FinetunedPanel extends Panel {
  ask(text, second, signal) {
    return this.engine.predict(this.index, text, second, signal);
  }

  clear() {
    this.words.replaceChildren();
    this.find(".labels").replaceChildren();
    this.find(".answer").textContent = this.find(".note").textContent = "";
  }

  show({ said = "", value = null, labels = [], words = [], note = "" }) {
    const headline = value === null ? said : value.toPrecision(4);
    this.find(".answer").textContent = headline;
    this.find(".note").textContent = note;
    this.find(".labels").replaceChildren(...labels.map(({ label, probability }) => {
      const item = made("li"), row = made("div", { of: "share", share: probability });
      row.append(made("span", { text: label }), number(probability, probability.toFixed(4)));
      item.append(row);
      return item;
    }));
    this.words.replaceChildren(...words.map((word) => {
      const element = made("span", { of: "word" });
      element.append(made("span", { text: word.text }), made("span", { of: "tag", text: word.tag }));
      return element;
    }));
    if (words.length) return words.map((word) => `${word.text}: ${word.tag}`).join(", ");
    return labels.length && said === labels[0].label ? `${said}, ${digits(labels[0].probability)}.` : `${headline}.`;
  }
}
