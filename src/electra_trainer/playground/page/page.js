// The page: one text, one or two models that read it.
import * as engine from "./engine.js";
import { FinetunedPanel, PretrainedPanel } from "./panel.js";

const PAUSE = 200; // milliseconds without a key before a text is read
const at = (id) => document.getElementById(id);
const text = at("text"), second = at("second"), example = at("example"), said = at("said");
let panels = [];
let waiting = 0;

/** Every model reads the text; `compare`: show how its words changed since the last time. */
async function read({ compare = false } = {}) {
  clearTimeout(waiting);
  const lines = await Promise.all(panels.map((panel) => panel.read(text.value, second.value, { compare })));
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

function offer(examples) {
  at("example-part").hidden = !examples.length;
  const choose = document.createElement("option");
  choose.textContent = `Choose one of ${examples.length}`;
  choose.value = "";
  example.append(choose);
  for (const [kind, title] of [["read", "As the discriminator read them, with words exchanged"], ["written", "As they were written"]]) {
    const group = document.createElement("optgroup");
    group.label = title;
    for (const one of examples.filter((one) => kind === "written" || one.read !== one.written)) {
      const option = document.createElement("option");
      option.textContent = option.value = one[kind];
      group.append(option);
    }
    if (group.children.length) example.append(group);
  }
  const first = example.querySelector("optgroup option");
  if (first && !text.value) text.value = first.value;
}

function arrange(models) {
  const both = models.find((model) => model.second);
  at("second-part").hidden = !both;
  if (both) at("second-label").textContent = both.second;
  if (both && both.second === "Question") at("text-label").textContent = "Text that may hold the answer";
  panels = models.map((model, index) => {
    const kind = model.kind === "pretrained" ? PretrainedPanel : FinetunedPanel;
    return new kind(model, index, { engine, exchanged, only: models.length === 1 });
  });
  at("how").textContent = [...new Set(models.map((model) => model.how))].filter(Boolean).join(" ");
  at("panels").replaceChildren(...panels.map((panel) => panel.element));
  offer(models.find((model) => model.examples?.length)?.examples ?? []);
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
  second.addEventListener("input", typed);
  example.addEventListener("change", () => {
    if (!example.value) return;
    text.value = example.value;
    typed();
  });
  if (text.value) await read();
}

begin();
