// The live tail: rows as they arrive. Pause keeps the place, Resume goes on from there.

const root = document.documentElement;
const MOST = 500;
const box = document.getElementById("tail");

if (box) {
  const body = box.querySelector("tbody");
  const state = document.getElementById("tail-state");
  const button = document.getElementById("tail-button");
  const texts = JSON.parse(document.getElementById("tail-words").textContent);
  let source = null;
  let position = box.dataset.at || "";
  let shown = 0;
  let skipped = 0;

  function say(text, mark) {
    state.querySelector(".dot").className = "dot " + mark;
    const parts = [text, texts.shown.replace("{}", shown.toLocaleString(root.lang))];
    if (skipped) parts.push(texts.skipped.replace("{}", skipped.toLocaleString(root.lang)));
    state.querySelector("span:last-child").textContent = parts.join(" · ");
  }

  function start() {
    const url = new URL(box.dataset.src, location.href);
    if (position) url.searchParams.set("at", position);
    source = new EventSource(url);
    source.onopen = () => say(texts.live, "");
    source.onerror = () => say(texts.again, "warn");
    source.addEventListener("rows", (event) => {
      if (event.lastEventId) position = event.lastEventId;
      const data = JSON.parse(event.data);
      skipped += data.skipped;
      shown += data.count;
      const bottom = box.scrollTop < 30;
      body.insertAdjacentHTML("afterbegin", data.html);
      document.getElementById("tail-empty").hidden = true;
      while (body.rows.length > MOST) body.deleteRow(-1);
      if (!bottom) box.scrollTop += data.count * 35;
      say(texts.live, "");
    });
    source.addEventListener("trouble", (event) => say(event.data, "bad"));
    button.querySelector("span").textContent = texts.pause;
    button.setAttribute("aria-pressed", "false");
  }

  function stop() {
    source.close();
    source = null;
    say(texts.paused, "off");
    button.querySelector("span").textContent = texts.resume;
    button.setAttribute("aria-pressed", "true");
  }


  button.addEventListener("click", () => (source ? stop() : start()));
  document.getElementById("tail-clear").addEventListener("click", () => { body.replaceChildren(); });
  start();
}
