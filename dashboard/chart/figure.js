// A figure that stays where it is: new data is drawn into the same element, so that a zoom and what was hidden outlive it.
//
// Streamlit calls the function at the end for each figure when it is mounted, when its data has come again, and when the
// page's colours change. All of them share this module.

const DECODER = new TextDecoder();
// The variables that the page's theme is told by. What a figure looks like depends on no others.
const TOLD = [
  "text-color", "heading-color", "gray-text-color", "border-color-light", "background-color", "font", "heading-font",
];
const FULL_SCREEN_ICON = {
  width: 512,
  height: 512,
  path: "M64 192V64h128v48H112v80zM320 64h128v128h-48v-80h-80zM64 320h48v80h80v48H64zM400 320h48v128H320v-48h80z",
};

const figures = new WeakMap();

// --- Plotly ---------------------------------------------------------------------------------------------------------

let loading = null;
let hasFailed = false;
const undrawn = new Set();

function plotly(address) {
  loading ??= load(address).then(
    (script) => {
      undrawn.forEach((figure) => waiting.add(figure));
      undrawn.clear();
      return script;
    },
    (error) => {
      loading = null;
      hasFailed = true;
      throw error;
    },
  );
  return loading;
}

async function load(address) {
  // The server says neither how old its file is nor how long it keeps: without this it would be sent for each page anew.
  // The address changes with the file.
  const answer = await fetch(new URL(address, document.baseURI), { cache: hasFailed ? "reload" : "force-cache" });
  if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
  const script = document.createElement("script");
  script.src = URL.createObjectURL(await answer.blob());
  await new Promise((resolve, reject) => {
    script.onload = resolve;
    script.onerror = () => reject(new Error("it is no script"));
    document.head.append(script);
  });
  URL.revokeObjectURL(script.src);
  if (!window.Plotly) throw new Error("it is another script");
  return window.Plotly;
}

// --- The page's colours ---------------------------------------------------------------------------------------------

function themeOf(element) {
  const style = getComputedStyle(element);
  const told = TOLD.map((name) => [name, style.getPropertyValue(`--st-${name}`).trim()]);
  return Object.fromEntries(told.filter(([, value]) => value));
}

function template(theme) {
  const text = theme["text-color"];
  const faint = theme["gray-text-color"] ?? text;
  const lines = theme["border-color-light"] ?? faint;
  const ground = theme["background-color"];
  const small = { color: faint, size: 12 };
  const named = { color: faint, size: 14 };
  // To look for numbers that don't fit is a seventh of what a figure costs; the margins have room for them.
  const axis = { gridcolor: lines, zerolinecolor: lines, tickcolor: lines, tickfont: small, ticklabeloverflow: "allow" };
  return {
    layout: {
      font: { ...small, family: theme.font },
      title: { font: { color: theme["heading-color"] ?? text, family: theme["heading-font"] }, pad: { l: 4 } },
      legend: { font: { color: text, size: 12 } },
      paper_bgcolor: ground,
      plot_bgcolor: ground,
      xaxis: { ...axis, title: { font: named }, zeroline: false },
      yaxis: { ...axis, title: { font: named, standoff: 24 } },
      margin: { pad: 8 },
      hoverlabel: { bgcolor: ground, bordercolor: lines, font: { color: text, family: theme.font, size: 12 } },
      modebar: { bgcolor: "transparent", color: faint, activecolor: text },
    },
    data: {
      heatmap: [{ colorbar: { outlinewidth: 0, tickfont: small, title: { font: named } } }],
      scatter: [{ marker: { line: { width: 0 } } }],
    },
  };
}

// --- One after the other --------------------------------------------------------------------------------------------

const waiting = new Set();
let isDrawing = false;

async function drawAll() {
  if (isDrawing) return;
  isDrawing = true;
  try {
    for (const figure of waiting) {
      // Nobody looks at a hidden page; what is newest when somebody does is drawn.
      if (document.hidden) await new Promise((seen) => document.addEventListener("visibilitychange", seen, { once: true }));
      waiting.delete(figure);
      await figure.draw();
      // The page scrolls and answers between two figures.
      await new Promise((go) => setTimeout(go));
    }
  } finally {
    isDrawing = false;
  }
}

// --- A figure -------------------------------------------------------------------------------------------------------

class Figure {
  constructor(mount) {
    this.mount = mount;
    this.place = document.createElement("div");
    this.place.dataset.testid = "figure";
    this.place.setAttribute("role", "figure");
    this.graph = document.createElement("div");
    this.message = document.createElement("div");
    this.message.setAttribute("role", "status");
    this.place.append(this.graph);
    mount.append(this.place);
    this.isFull = false;
    this.onKey = (event) => event.key === "Escape" && this.fill(false);
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this.place);
  }

  show(bytes) {
    const text = DECODER.decode(bytes);
    const theme = themeOf(this.mount);
    const look = JSON.stringify(theme);
    if (text === this.text && look === this.look && this.graph.layout) return;
    Object.assign(this, { text, theme, look });
    const { height, title } = JSON.parse(text.slice(0, text.indexOf("\n")));
    this.height = height;
    this.place.setAttribute("aria-label", title);
    this.mount.style.height = `${height}px`;
    waiting.add(this);
    drawAll();
  }

  async draw() {
    try {
      const [frame, body] = this.text.split("\n");
      const { script, config } = JSON.parse(frame);
      const Plotly = await plotly(script);
      if (!this.mount.isConnected) return;
      const { data, layout } = JSON.parse(body);
      const { width, height } = this.size();
      this.designed = { margin: layout.margin, title: layout.title.y, legend: layout.legend?.y };
      Object.assign(layout, { template: template(this.theme), width, height });
      layout.title.y = this.above(height).title;
      if (layout.legend) layout.legend.y = this.above(height).legend;
      // Later ones would have Plotly look for what has changed in it.
      const first = this.plotly ? [] : [this.config(config)];
      this.plotly = Plotly;
      await Plotly.react(this.graph, data, layout, ...first);
      this.message.remove();
    } catch (error) {
      const missing = this.plotly ? "" : "the script that draws it, plotly.min.js of the package plotly, didn't come: ";
      this.say(`This figure can't be drawn: ${missing}${error.message}. It is tried again with the next step, or when the page is loaded again.`);
    }
  }

  config(config) {
    const click = () => this.fill(!this.isFull);
    return { ...config, modeBarButtonsToAdd: [{ name: "Full screen", title: "Full screen", icon: FULL_SCREEN_ICON, click }] };
  }

  say(words) {
    this.message.textContent = words;
    this.place.append(this.message);
    if (!this.plotly) undrawn.add(this);
  }

  size() {
    const { clientWidth, clientHeight } = this.place;
    return { width: Math.max(150, clientWidth), height: this.isFull ? clientHeight : this.height };
  }

  resize() {
    const drawn = this.graph.layout;
    const { width, height } = this.size();
    if (!drawn || !this.place.clientWidth || (drawn.width === width && drawn.height === height)) return;
    const { title, legend } = this.above(height);
    this.plotly.relayout(this.graph, { width, height, "title.y": title, "legend.y": legend });
  }

  // Where title and legend are, in shares of a height: as many pixels above the plot as at the height it was designed for.
  above(height) {
    const { margin, title, legend } = this.designed;
    const plot = (whole) => whole - margin.t - margin.b;
    return {
      title: 1 - ((1 - title) * this.height) / height,
      legend: legend === undefined ? undefined : 1 + ((legend - 1) * plot(this.height)) / plot(height),
    };
  }

  // As large as the window, above all else of the page; the figure's own place is kept meanwhile.
  fill(isFull) {
    this.isFull = isFull;
    const { style } = this.place;
    style.cssText = isFull
      ? `position: fixed; inset: 0; width: 100vw; height: 100vh; max-width: none; max-height: none; margin: 0; border: 0;
         padding: 0; overflow: hidden; background: var(--st-background-color)`
      : "";
    if (isFull) {
      this.place.setAttribute("popover", "manual");
      this.place.showPopover();
      document.addEventListener("keydown", this.onKey);
    } else {
      this.place.removeAttribute("popover");
      document.removeEventListener("keydown", this.onKey);
    }
    this.resize();
  }

  leave() {
    waiting.delete(this);
    undrawn.delete(this);
    this.sizes.disconnect();
    document.removeEventListener("keydown", this.onKey);
    this.plotly?.purge(this.graph);
    this.place.remove();
  }
}

export default function ({ parentElement, data }) {
  const known = figures.get(parentElement);
  const figure = known ?? new Figure(parentElement);
  if (!known) figures.set(parentElement, figure);
  figure.show(data);
  return () => {
    // It is called for data that is overtaken, too.
    if (parentElement.isConnected) return;
    figure.leave();
    figures.delete(parentElement);
  };
}
