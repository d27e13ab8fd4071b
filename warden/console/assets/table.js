// A table of many things: sorted by the column that was chosen, one row a thing, and one place in the order of the Tab key.

import { el, keyed, text } from "./draw.js";

/**
 * Table shows items as rows. columns: [{title, of(item), write(item)}], of being what is sorted by and the first column the item's
 * name; a column is sorted from its highest value down when it is chosen, and the other way round when it is chosen again. label
 * names the table; pick(key) is told of the row that was chosen.
 */
export class Table {
  constructor({ label, columns, key, pick }) {
    Object.assign(this, { columns, key, by: 1, down: true, items: [], at: null });
    this.heads = columns.map((c, i) => {
      const button = el("button", { type: "button" }, c.title);
      button.addEventListener("click", () => {
        this.down = this.by === i ? !this.down : i > 0; // names from a to z
        this.by = i;
        this.draw(this.items);
      });
      return el("th", { scope: "col" }, button);
    });
    this.body = el("tbody");
    this.element = el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label },
      el("table", {}, el("thead", {}, el("tr", {}, ...this.heads)), this.body));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) pick(this.go(row));
    });
    this.body.addEventListener("keydown", (event) => {
      const row = event.target.closest("tr"), rows = this.body.children;
      const to = { ArrowUp: row?.previousElementSibling, ArrowDown: row?.nextElementSibling, Home: rows[0], End: rows[rows.length - 1] }[event.key];
      if (!to) return;
      event.preventDefault();
      this.go(to).focus();
    });
  }

  /** go makes a row the one that the Tab key reaches, and returns its button. */
  go(row) {
    this.at = row.dataset.key;
    for (const other of this.body.children) other.querySelector("button").tabIndex = other === row ? 0 : -1;
    return row.querySelector("button");
  }

  /** draw shows items, which are in the order of what is alike in the column. picked is the key of the chosen one. */
  draw(items, picked = this.picked) {
    Object.assign(this, { items, picked });
    this.heads.forEach((th, i) => th.setAttribute("aria-sort", i !== this.by ? "none" : this.down ? "descending" : "ascending"));
    const { of } = this.columns[this.by], sign = this.down ? -1 : 1;
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
    const sorted = items.toSorted((a, b) => sign * compare(of(a), of(b)));
    keyed(this.body, sorted, this.key,
      () => el("tr", {}, el("th", { scope: "row" }, el("button", { type: "button", class: "name", tabindex: "-1" })), ...this.columns.slice(1).map(() => el("td"))),
      (tr, item) => {
        tr.dataset.level = item.level;
        this.columns.forEach((c, i) => text(i === 0 ? tr.firstChild.firstChild : tr.children[i], c.write(item)));
        const name = tr.firstChild.firstChild;
        name.title = this.columns[0].write(item);
        name.setAttribute("aria-pressed", String(this.key(item) === picked));
      });
    const rows = [...this.body.children];
    const row = rows.find((r) => r.dataset.key === this.at) ?? rows[0];
    if (row) this.go(row);
  }
}
