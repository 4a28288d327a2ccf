// Comfort only; the page is whole without it. Whatever is about one data path lights up together.
(() => {
  const all = document.querySelectorAll("[data-c]");
  const light = (candidate) => {
    document.body.classList.toggle("lit", candidate !== null);
    for (const element of all) {
      element.classList.toggle("hot", element.dataset.c === candidate);
    }
  };
  document.addEventListener("pointerover", (event) => {
    const over = event.target.closest("svg [data-c], tr[data-c]");
    light(over ? over.dataset.c : null);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") light(null);
  });

  const paths = document.querySelectorAll("#paths details");
  const heading = document.querySelector("#paths .lead");
  if (heading && paths.length > 1) {
    const button = document.createElement("button");
    button.type = "button";
    const label = (open) => { button.textContent = open ? "close all" : "open all"; };
    let open = false;
    label(open);
    button.addEventListener("click", () => {
      open = !open;
      for (const path of paths) path.open = open;
      label(open);
    });
    heading.after(button);
  }
})();
