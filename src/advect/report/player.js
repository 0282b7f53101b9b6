// The player of a report: one time, shared by the particles, the charts and the film.

const page = JSON.parse(find("story").textContent);
const { steps } = page, last = steps.length - 1;
const state = { time: 0, playing: false, pinned: null, hover: null, only: null, yaw: -0.9, pitch: 0.35, go };
const flow = scene(page, state, changed);
const charts = page.charts.filter((spec) => spec.series.some((s) => s.y.some((v) => v !== null)));
const frameNow = () => Math.round(state.time);

function show() {
  const step = steps[frameNow()];
  find("time").value = frameNow();
  find("time").setAttribute("aria-valuetext", `step ${step}`);
  const value = ` · F = ${format(page.values[frameNow()])}`;
  find("now").replaceChildren(`step ${step} of ${steps[last]}`, make("span", { className: "value", text: value }));
  flow.draw(state.time);
  for (const spec of charts) spec.mark(step);
}
function changed(film = false) {
  if (document.activeElement !== find("sample")) {
    find("sample").value = state.pinned ?? "";
    say();
  }
  show();
  if (film) flow.drawFilm();
}
function go(frame) {
  state.time = Math.min(last, Math.max(0, frame));
  show();
}
function seek(step) {
  go(closest(steps, step));
}

// Play.

let clock = null;
function play(on) {
  if (on && last === 0) return;
  if (on && state.time >= last) state.time = 0;
  state.playing = on;
  clock = null;
  find("play").textContent = on ? "❚❚" : "▶";
  find("play").setAttribute("aria-label", on ? "Pause" : "Play");
  if (on) requestAnimationFrame(tick);
  else go(frameNow());
}
function tick(now) {
  if (!state.playing) return;
  const pace = last / Math.min(12, Math.max(4, last / 8)); // frames a second
  state.time = Math.min(last, state.time + (clock === null ? 0 : ((now - clock) / 1000) * pace));
  clock = now;
  if (state.time >= last) {
    play(false);
    if (embedded()) window.setTimeout(() => frameNow() === last && play(true), 2500);
    return;
  }
  show();
  requestAnimationFrame(tick);
}
function keys(event) {
  const tag = event.target.tagName, typing = tag === "INPUT" && event.target.type === "number";
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const moves = { ArrowLeft: frameNow() - 1, ArrowRight: frameNow() + 1, Home: 0, End: last };
  if (event.key === " " && tag !== "BUTTON" && tag !== "SUMMARY") play(!state.playing);
  else if (event.key in moves && !event.target.closest(".scroll, pre")) {
    play(false);
    go(moves[event.key]);
  } else return;
  event.preventDefault();
}

// Select a sample by its number, with a message for a number that is not shown.

const { total } = page;
function missing(row, bad) {
  if (bad || !Number.isInteger(row)) return `Enter a sample number from 0 to ${total - 1}.`;
  if (row < 0 || row >= total) return `There is no sample ${row}. Sample numbers are 0 to ${total - 1}.`;
  const shown = Array.from(flow.rows);
  if (shown.includes(row)) return "";
  return `Sample ${row} is not shown (${shown.length} of ${total} are). The nearest one is ${shown[closest(shown, row)]}.`;
}
function say(answer = "") {
  find("sample").setAttribute("aria-invalid", String(answer !== ""));
  find("sample-help").textContent = answer || "or point at one";
  find("sample-help").classList.toggle("answer", answer !== "");
}
function ask() {
  const box = find("sample"), empty = box.value === "" && !box.validity.badInput;
  const answer = empty ? "" : missing(box.valueAsNumber, box.validity.badInput);
  [state.pinned, state.hover] = [empty || answer ? null : box.valueAsNumber, null];
  say(answer);
  show();
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  redraw();
}
// Inside another page, as flow.html#embed, #embed-light or #embed-dark: the player alone, which plays by itself, again and again.
const embedded = () => window.location.hash.startsWith("#embed");
function embed() {
  if (!embedded()) return;
  document.documentElement.dataset.embed = "yes";
  const theme = window.location.hash.split("-")[1];
  if (theme) setTheme(theme === "dark");
  else redraw();
}
function redraw() {
  charts.forEach((spec) => drawChart(spec, { palette: page.palette, seek }));
  flow.repaint();
  show();
}
async function start() {
  await flow.start();
  for (const spec of charts) spec.figure = make("figure");
  find("charts").append(...charts.map((spec) => spec.figure));
  const wishes = window.matchMedia("(prefers-color-scheme: dark)");
  setTheme(wishes.matches);
  wishes.addEventListener("change", () => setTheme(wishes.matches));
  find("theme").addEventListener("click", () => setTheme(!isDark()));
  find("play").addEventListener("click", () => play(!state.playing));
  find("time").addEventListener("input", () => {
    if (state.playing) play(false);
    go(Number(find("time").value));
  });
  find("sample").addEventListener("input", ask);
  document.addEventListener("keydown", keys);
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (width !== window.innerWidth) redraw(); // a phone's address bar changes the height alone
    width = window.innerWidth;
  });
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = isDark();
    setTheme(false);
  });
  window.addEventListener("afterprint", () => setTheme(before));
  embed();
  window.addEventListener("hashchange", embed);
  if (embedded() && !window.matchMedia("(prefers-reduced-motion: reduce)").matches) play(true);
  document.documentElement.dataset.ready = "yes";
}
start();
