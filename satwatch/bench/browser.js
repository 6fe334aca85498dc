// What the benchmark asks of a page: when the server was asked and had answered, and which figures are drawn.
(() => {
  const now = () => (performance.timeOrigin + performance.now()) / 1000;
  const sent = [];
  const heard = [];
  const listened = new WeakSet();
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (data) {
    if (!listened.has(this)) {
      listened.add(this);
      this.addEventListener("message", () => heard.push(now()));
    }
    sent.push(now());
    return send.call(this, data);
  };

  const charts = () => [...document.querySelectorAll("[data-testid=figure]")];
  const figures = () => charts().map((chart) => chart.querySelector(".js-plotly-plot"));
  const isDrawn = (figure) => figure?._fullData?.length > 0 && figure.querySelector(".main-svg") !== null;
  const reaches = (figure, step) => figure._fullData.some((trace) => trace.x?.[trace.x.length - 1] >= step);
  // The buttons that save what is shown end the page.
  const hasEnded = () => document.querySelectorAll("[data-testid=stDownloadButton]").length > 1;
  const isRunning = () => document.querySelector("[data-testid=stApp]")?.dataset.testScriptState === "running";

  window.bench = {
    sent,
    // Seconds since the address was entered, once all figures are drawn.
    opened() {
      const all = figures();
      if (isRunning() || !hasEnded() || !all.length || !all.every(isDrawn)) return null;
      const began = performance.timeOrigin / 1000;
      return { drawn: now() - began, answered: heard[heard.length - 1] - began, figures: all.length };
    },
    // Unix time in seconds, once all figures show a step.
    shows(step) {
      const all = figures();
      return all.length && all.every((figure) => isDrawn(figure) && reaches(figure, step)) ? now() : null;
    },
  };
})();
