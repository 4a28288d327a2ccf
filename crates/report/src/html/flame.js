// Flame graphs: a click widens a box to the whole width, a text marks functions. Without it all boxes are there.
(() => {
  const place = (box) => ({
    box,
    x: parseFloat(box.getAttribute("x")),
    y: parseFloat(box.getAttribute("y")),
    width: parseFloat(box.getAttribute("width")),
    title: box.firstElementChild.textContent,
  });
  const nameOf = (spot) => spot.title.slice(0, spot.title.lastIndexOf(": "));

  // A name is written where there is room for letters of about 6.7 pixels.
  const label = (spot, percent, pixels) => {
    let text = spot.box.querySelector("text");
    const wanted = (percent / 100) * pixels > 18;
    if (wanted && !text) {
      text = document.createElementNS(spot.box.namespaceURI, "text");
      text.setAttribute("x", "3");
      text.setAttribute("y", "12");
      text.textContent = nameOf(spot);
      spot.box.append(text);
    } else if (text) {
      text.style.display = wanted ? "" : "none";
    }
  };

  const enliven = (flame) => {
    const svg = flame.querySelector("svg");
    const spots = [...svg.querySelectorAll(".f")].map(place);
    const zoom = (to) => {
      const pixels = svg.getBoundingClientRect().width;
      for (const spot of spots) {
        const below = spot.y >= to.y && spot.x <= to.x + 1e-3 && spot.x + spot.width >= to.x + to.width - 2e-3;
        const x = below ? 0 : ((spot.x - to.x) / to.width) * 100;
        const width = below ? 100 : (spot.width / to.width) * 100;
        const seen = below || (spot.y < to.y && x > -1e-2 && x + width < 100.01);
        spot.box.style.display = seen ? "" : "none";
        if (!seen) continue;
        spot.box.setAttribute("x", `${x}%`);
        spot.box.setAttribute("width", `${width}%`);
        label(spot, width, pixels);
      }
    };
    svg.addEventListener("click", (event) => {
      const box = event.target.closest(".f");
      const to = spots.find((spot) => spot.box === box);
      if (to) zoom(to);
    });

    const tools = document.createElement("div");
    tools.className = "tools";
    const button = (text, act) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = text;
      made.addEventListener("click", () => act(made));
      tools.append(made);
    };
    button("whole", () => zoom(spots[0]));
    if (flame.classList.contains("by-difference")) {
      button("colours: difference", (made) => {
        const byPart = flame.classList.toggle("by-part");
        flame.classList.toggle("by-difference", !byPart);
        made.textContent = byPart ? "colours: part of the kernel" : "colours: difference";
      });
    }
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "mark functions";
    field.setAttribute("aria-label", "mark functions whose names hold this text");
    const found = document.createElement("span");
    field.addEventListener("input", () => {
      const text = field.value.trim();
      const hits = spots.filter((spot) => text !== "" && nameOf(spot).includes(text));
      for (const spot of spots) spot.box.classList.toggle("hit", hits.includes(spot));
      // A box within another that is marked too is part of it.
      const within = (inner, outer) =>
        inner !== outer && inner.y < outer.y && inner.x >= outer.x - 1e-3 &&
        inner.x + inner.width <= outer.x + outer.width + 1e-3;
      const outermost = hits.filter((hit) => !hits.some((other) => within(hit, other)));
      const share = outermost.reduce((sum, hit) => sum + hit.width, 0);
      found.textContent = text === "" ? "" : `${share.toFixed(1)} %`;
    });
    tools.append(field, found);
    flame.prepend(tools);
  };
  for (const flame of document.querySelectorAll(".flame")) enliven(flame);
})();
