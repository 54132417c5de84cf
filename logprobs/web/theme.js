// The theme: that of the system, light or dark.

import { byId } from "./elements.js";

const THEMES = ["light dark", "light", "dark"];

/** Change to the next theme, and name it on its button. */
export function changeTheme() {
  const root = document.documentElement;
  const next = (THEMES.indexOf(root.dataset.theme ?? THEMES[0]) + 1) % THEMES.length;
  root.dataset.theme = THEMES[next];
  root.style.colorScheme = THEMES[next];
  byId("theme").textContent = ["Theme", "Light", "Dark"][next];
}
