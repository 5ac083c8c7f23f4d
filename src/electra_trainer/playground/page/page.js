// The page: one text, one or two models that read it.
import * as engine from "./engine.js";
import { PretrainedPanel } from "./panel.js";

const PAUSE = 200; // milliseconds without a key before a text is read
const at = (id) => document.getElementById(id);
const text = at("text"), said = at("said");
let panels = [];
let waiting = 0;

/** Every model reads the text; `compare`: show how its words changed since the last time. */
async function read({ compare = false } = {}) {
  clearTimeout(waiting);
  const lines = await Promise.all(panels.map((panel) => panel.read(text.value, { compare })));
  said.textContent = lines.filter(Boolean).join(" ");
}

function typed() {
  clearTimeout(waiting);
  for (const panel of panels) panel.typed();
  waiting = setTimeout(read, PAUSE);
}

/** A panel has put another word in; candidates of the other panel are for a text that is no more. */
async function exchanged(changed, by) {
  text.value = changed;
  for (const panel of panels) if (panel !== by) panel.typed();
  await read({ compare: true });
}

function arrange(models) {
  panels = models.map((model, index) => new PretrainedPanel(model, index, { engine, exchanged, only: models.length === 1 }));
  at("panels").replaceChildren(...panels.map((panel) => panel.element));
  if (!text.value) text.value = models.find((model) => model.opening)?.opening ?? "";
}

async function begin() {
  try {
    arrange(await engine.models());
  } catch (error) {
    at("loading").hidden = true;
    at("trouble").textContent = error.message;
    at("trouble").hidden = false;
    return;
  } finally {
    at("panels").removeAttribute("aria-busy");
  }
  text.addEventListener("input", typed);
  if (text.value) await read();
}

begin();
