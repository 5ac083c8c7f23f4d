// The engine of `electra playground`: the functions of `electra score` and `electra fill`, asked over HTTP.

const RETRIES = 5;

async function answer(path, options, retries = RETRIES) {
  let response;
  try {
    response = await fetch(`api/${path}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is `electra playground` still running?");
  }
  if (response.status === 503 && retries > 0) {
    await new Promise((resume) => setTimeout(resume, 1000));
    return answer(path, options, retries - 1);
  }
  const found = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
  if (!response.ok) throw new Error(found.error);
  return found;
}

function ask(what, question, signal) {
  return answer(what, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question), signal });
}

/** What there is to show: kind, name, steps and examples of each model. */
export const models = async () => (await answer("models")).models;
/** Words of a text with the probabilities that their tokens were replaced. */
export const score = (model, step, text, signal) => ask("score", { model, step, text }, signal);
/** For each [MASK] of a text its candidates. */
export const fill = async (model, step, text, top, signal) => (await ask("fill", { model, step, text, top }, signal)).gaps;
/** What a fine-tuned model says of a text, or of two. */
export const predict = (model, text, second, signal) => ask("predict", { model, text, second }, signal);
