// The flow on the first page is dark where the page is: by the reader's choice, or else by the system's.
"use strict";
(() => {
  const frame = document.querySelector("iframe.landing"), wishes = window.matchMedia("(prefers-color-scheme: dark)");
  const dress = () => {
    const chosen = document.body.dataset.theme, dark = chosen === "dark" || (chosen !== "light" && wishes.matches);
    const src = `flow.html#embed-${dark ? "dark" : "light"}`;
    if (frame.getAttribute("src") !== src) frame.setAttribute("src", src);
  };
  dress();
  wishes.addEventListener("change", dress);
  new MutationObserver(dress).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
})();
