// The engine of `electra export --to web`: the exported networks in ONNX, by transformers.js. Nothing is asked of any other machine.

const ENGINE = "transformers.min.js";
let loading = null;
let about = null;

/** transformers.js, the tokenizer and both networks; once. */
function load() {
  loading ??= (async () => {
    const base = new URL("engine/", import.meta.url).href;
    let lib;
    try {
      lib = await import(`${base}${ENGINE}`);
    } catch {
      throw new Error(`engine/${ENGINE} cannot be loaded. README.md, beside this page, says how it comes there.`);
    }
    Object.assign(lib.env, {
      allowRemoteModels: false, allowLocalModels: true, useBrowserCache: false, useWasmCache: false,
      localModelPath: new URL("models/", import.meta.url).pathname, // it takes no URL
    });
    lib.env.backends.onnx.wasm.wasmPaths = {
      mjs: `${base}ort-wasm-simd-threaded.asyncify.mjs`, wasm: `${base}ort-wasm-simd-threaded.asyncify.wasm`,
    };
    const { networks, dtype } = about;
    const options = { dtype, device: "wasm" };
    const [tokenizer, json] = await Promise.all([
      lib.AutoTokenizer.from_pretrained(networks[0]),
      fetch(new URL(`models/${networks[0]}/tokenizer.json`, import.meta.url)).then((found) => found.json()),
    ]);
    const tokens = [];
    for (const [token, id] of Object.entries(json.model.vocab)) tokens[id] = token;
    for (const { content, id } of json.added_tokens) tokens[id] = content;
    // ELECTRA's class for each token's logit has another name there: it is the same network
    const discriminator = networks.includes("discriminator") && (await lib.AutoModelForTokenClassification.from_pretrained("discriminator", options));
    const filler = ["generator", "encoder"].find((name) => networks.includes(name));
    const generator = filler && (await lib.AutoModelForMaskedLM.from_pretrained(filler, options));
    return { lib, tokenizer, tokens, discriminator, generator };
  })();
  return loading;
}

async function logits(network, ids) {
  const { Tensor } = (await load()).lib;
  const filled = (value) => new Tensor("int64", BigInt64Array.from(ids, value), [1, ids.length]);
  const found = await network({ input_ids: filled((id) => BigInt(id)), attention_mask: filled(() => 1n) }); // it adds segments of zeros
  return found.logits.data;
}

// Blanks and punctuation as BERT's tokenizer splits at them: words between them are tokenized each alone, to the same ids
const PARTS = /[!-/:-@[-`{-~\p{P}]|[^\t\n\r\p{Z}!-/:-@[-`{-~\p{P}]+/gu;

function encoded(text, tokenizer) {
  const words = [];
  let after = 0;
  for (const { 0: part, index } of text.matchAll(PARTS)) {
    const ids = tokenizer.encode(part, { add_special_tokens: false }).map(Number);
    if (!ids.length) continue; // characters that it drops
    words.push({ before: text.slice(after, index), text: part, ids });
    after = index + part.length;
  }
  return { words, after: text.slice(after) };
}

const required = (words) => {
  if (!words.length) throw new Error("the text is empty: give at least one word.");
};

/** What there is to show: kind, name, steps and examples of the one model. */
export async function models() {
  about ??= await (await fetch(new URL("about.json", import.meta.url))).json();
  await load();
  return [about.model];
}

/** Words of a text with the probabilities that their tokens were replaced; long texts in windows, as `electra score` reads them. */
export async function score(model, step, text, signal) {
  const { tokenizer, tokens, discriminator } = await load();
  const { words, after } = encoded(text, tokenizer);
  required(words);
  const ids = words.flatMap((word) => word.ids), shares = [];
  const room = about.length - 2;
  for (let first = 0; discriminator && first < ids.length; first += room) {
    const row = [about.specials.cls, ...ids.slice(first, first + room), about.specials.sep];
    const found = await logits(discriminator, row), pairs = found.length > row.length; // ModernBERT has two a token: original, replaced
    if (signal?.aborted) throw new DOMException("another text came", "AbortError");
    const all = row.map((_, at) => (pairs ? found[2 * at + 1] - found[2 * at] : found[at]));
    shares.push(...all.slice(1, -1).map((logit) => 1 / (1 + Math.exp(-logit))));
  }
  let at = 0;
  for (const word of words) {
    word.tokens = word.ids.map((id) => tokens[id]);
    word.replaced_probability = shares.slice(at, (at += word.ids.length));
  }
  return { words, after };
}

/** For each [MASK] of a text its candidates, as `electra fill`. */
export async function fill(model, step, text, top) {
  const { tokenizer, tokens, generator } = await load();
  if (!generator) throw new Error("fill: there is no generator here.");
  const { cls, sep } = about.specials;
  const parts = text.split(/(\[(?:PAD|UNK|CLS|SEP|MASK)\])/u);
  const inner = parts.flatMap((part, at) =>
    at % 2 ? [about.specials[part.slice(1, -1).toLowerCase()]] : encoded(part, tokenizer).words.flatMap((word) => word.ids));
  const ids = [cls, ...inner, sep];
  if (ids.length > about.length) throw new Error(`fill: the text has ${ids.length} tokens; the training rows had ${about.length}. Shorten it.`);
  const all = await logits(generator, ids), size = all.length / ids.length;
  return ids.flatMap((id, at) => {
    if (id !== about.specials.mask) return [];
    const row = Float64Array.from(all.subarray(at * size, (at + 1) * size));
    const most = row.reduce((one, two) => Math.max(one, two));
    const sum = row.reduce((total, logit) => total + Math.exp(logit - most), 0);
    const order = [...row.keys()].sort((one, two) => row[two] - row[one]).slice(0, top);
    return [order.map((token) => ({ token: tokens[token] ?? `[${token}]`, probability: Math.exp(row[token] - most) / sum }))];
  });
}
