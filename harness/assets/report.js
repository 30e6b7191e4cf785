"use strict";
// The samples are data in the page, parsed once; rows are made for the page in view, and a sample's texts when it is
// opened. All of it is set as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const PER_PAGE = 100;
const form = document.getElementById("filter");
const list = document.getElementById("list");
let page = 0;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fill(select, values, first) {
  const chosen = select.value;
  select.replaceChildren(...(first ? [new Option(first, "")] : []), ...values.map((value) => new Option(value, value)));
  if (values.includes(chosen)) select.value = chosen;
}

function passes(sample, metric) {
  return metric in sample.scores && sample.scores[metric] >= 1;
}

function found() {
  const want = Object.fromEntries(new FormData(form));
  const text = want.text.toLowerCase();
  return data.samples.filter((sample) =>
    sample.task === want.task &&
    (!want.kind || sample.kind === want.kind) &&
    (!want.status || sample.status === want.status) &&
    (!want.which || (want.which === "passed") === passes(sample, want.metric)) &&
    (!text || sample.id.toLowerCase().includes(text) ||
      sample.blocks.some(([, content]) => content.toLowerCase().includes(text))));
}

function opened(sample) {
  const parts = sample.blocks.map(([role, content]) => {
    const block = element("div", undefined, "block");
    block.append(element("div", role, "role"), element("pre", content));
    return block;
  });
  const scores = Object.entries(sample.scores).map(([name, value]) => `${name} ${+value.toFixed(4)}`).join("   ");
  const verdict = element("div", undefined, "block");
  verdict.append(element("div", "verdict", "role"), element("pre", [sample.reason, scores].filter(Boolean).join("\n")));
  return [...parts, verdict];
}

function row(sample, metric) {
  const details = element("details");
  const summary = element("summary");
  const value = sample.scores[metric];
  summary.append(
    element("span", value === undefined ? "no score" : `${metric} ${+value.toFixed(4)}`, passes(sample, metric) ? "pass" : "fail"),
    ` ${sample.id} `, element("span", `${sample.kind}, ${sample.status}`, "mute"));
  details.append(summary);
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(...opened(sample));
  });
  return details;
}

function show() {
  const samples = found();
  const pages = Math.max(1, Math.ceil(samples.length / PER_PAGE));
  page = Math.min(page, pages - 1);
  document.getElementById("count").textContent = `${samples.length} samples, page ${page + 1} of ${pages}`;
  list.replaceChildren(...samples.slice(page * PER_PAGE, (page + 1) * PER_PAGE).map((s) => row(s, form.metric.value)));
}

function choose() {
  const samples = data.samples.filter((sample) => sample.task === form.task.value);
  fill(form.kind, [...new Set(samples.map((sample) => sample.kind))].sort(), "all kinds");
  fill(form.status, [...new Set(samples.map((sample) => sample.status))].sort(), "all statuses");
  fill(form.metric, data.metrics[form.task.value] || []);
  page = 0;
  show();
}

fill(form.task, Object.keys(data.metrics));
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => (event.target === form.task ? choose() : ((page = 0), show())));
document.getElementById("before").addEventListener("click", () => { page = Math.max(0, page - 1); show(); });
document.getElementById("after").addEventListener("click", () => { page += 1; show(); });
choose();
