// The questions of a task as buttons and fields. Whatever comes from the server is text, never markup.

export function made(tag, properties = {}, ...inside) {
  const one = Object.assign(document.createElement(tag), properties);
  one.append(...inside);
  return one;
}

export function filled(text, item) {
  return text.replaceAll("{class}", item?.class ?? "the class").replaceAll("{shift}", (item?.shift ?? "the shift").replaceAll("_", " "));
}

export class Questions {
  constructor(form, task, changed) {
    Object.assign(this, { form, task, changed, value: {}, fields: new Map(), boxes: null });
    this.quick = task.questions.length === 1 && task.questions[0].kind === "single";   // one click answers
    this.form.addEventListener("submit", (e) => e.preventDefault());
    this.form.replaceChildren(...task.questions.map((question) => this.field(question)));
  }

  field(question) {
    const legend = made("legend", { className: this.task.questions.length === 1 ? "main" : "" });
    const field = made("fieldset", {}, legend);
    const parts = { question, field, legend, buttons: [] };
    this.fields.set(question.id, parts);
    if (question.kind === "text") field.append(this.text(question, parts));
    else if (question.kind === "scale") field.append(this.scale(question, parts));
    else field.append(this.choices(question, parts));
    if (question.kind === "boxes") field.append((parts.list = made("ul", { className: "boxes" })));
    return field;
  }

  choices(question, parts) {
    const around = made("div", { className: this.quick ? "choices large" : "choices" });
    for (const choice of question.choices) {
      const button = made("button", { type: "button" }, made("span", { textContent: filled(choice.text || choice.value) }));
      if (choice.key) button.append(made("kbd", { textContent: choice.key.toUpperCase() }));
      button.dataset.value = choice.value;
      button.addEventListener("click", () => this.pick(question, choice.value));
      parts.buttons.push(button);
      around.append(button);
    }
    return around;
  }

  scale(question, parts) {
    const around = made("div", { className: "choices" });
    for (let i = question.low; i <= question.high; i++) {
      const button = made("button", { type: "button", textContent: String(i) });
      button.dataset.value = i;
      button.addEventListener("click", () => this.pick(question, i));
      parts.buttons.push(button);
      around.append(button);
    }
    return around;
  }

  text(question, parts) {
    parts.area = made("textarea", { maxLength: 2000, rows: 3 });
    parts.area.addEventListener("input", () => { this.value[question.id] = parts.area.value; this.changed(false); });
    return parts.area;
  }

  pick(question, value) {
    if (question.kind === "boxes") { this.boxes.relabel(value); this.show(); return; }
    if (question.kind === "several") this.value[question.id] = toggled(this.value[question.id] ?? [], value);
    else this.value[question.id] = value;
    this.show();
    this.changed(this.quick);
  }

  key(key) {
    for (const { question } of this.fields.values()) {
      const choice = question.choices.find((one) => one.key && one.key.toLowerCase() === key.toLowerCase());
      if (choice) { this.pick(question, choice.value); return true; }
      if (question.kind === "scale" && this.task.questions.length === 1 && /^[0-9]$/.test(key) && +key >= question.low && +key <= question.high) {
        this.pick(question, +key);
        return true;
      }
    }
    return false;
  }

  begin(item, value) {
    this.value = structuredClone(value ?? {});
    for (const { question, legend, area, field } of this.fields.values()) {
      legend.textContent = filled(question.ask, item);
      field.classList.remove("missing");
      if (area) area.value = this.value[question.id] ?? "";
    }
    if (this.boxes) this.boxes.set(this.value[this.boxesId] ?? []);
    this.show();
  }

  show() {
    for (const { question, buttons, list } of this.fields.values()) {
      const value = this.value[question.id];
      for (const button of buttons) {
        const own = question.kind === "scale" ? Number(button.dataset.value) : button.dataset.value;
        const on = question.kind === "boxes" ? this.boxes?.label === own : Array.isArray(value) ? value.includes(own) : value === own;
        button.setAttribute("aria-pressed", String(on));
      }
      if (list) this.listed(list);
    }
  }

  listed(list) {
    list.replaceChildren(...this.boxes.list.map((one, i) => {
      const swatch = made("span", { className: "swatch" });
      swatch.style.background = this.boxes.colour(one.label);
      const choose = made("button", { type: "button" }, swatch, `${i + 1} · ${one.label}`);
      choose.setAttribute("aria-pressed", String(i === this.boxes.chosen));
      choose.addEventListener("click", () => this.boxes.choose(i));
      const remove = made("button", { type: "button", textContent: "✕" });
      remove.setAttribute("aria-label", `Remove box ${i + 1}`);
      remove.addEventListener("click", () => this.boxes.remove(i));
      return made("li", {}, choose, remove);
    }));
  }

  // The answers, or null where one is missing; missing ones are marked.
  answers() {
    if (this.boxes) this.value[this.boxesId] = this.boxes.value();
    let whole = true;
    const found = {};
    for (const { question, field } of this.fields.values()) {
      const value = this.value[question.id];
      const empty = value === undefined || (question.kind !== "boxes" && value.length === 0);
      field.classList.toggle("missing", empty && !question.optional);
      if (!empty) found[question.id] = value;
      else if (!question.optional) whole = false;
    }
    return whole ? found : null;
  }
}

function toggled(list, value) {
  if (list.includes(value)) return list.filter((one) => one !== value);
  return value === "none" ? ["none"] : [...list.filter((one) => one !== "none"), value].sort();
}
