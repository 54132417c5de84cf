// The theme: that of the system, light or dark.

import { byId } from "./elements.js";

const THEMES = ["light dark", "light", "dark"];
const NAMES = ["Theme", "Light", "Dark"];

/** Change to the next theme. Return it. */
export function changeTheme() {
  const next = (THEMES.indexOf(document.documentElement.dataset.theme ?? THEMES[0]) + 1) % THEMES.length;
  showTheme(THEMES[next]);
  return THEMES[next];
}

/** Show a theme, and name it on its button. Other texts than a theme change nothing. */
export function showTheme(theme) {
  if (!THEMES.includes(theme)) return;
  const root = document.documentElement;
  root.dataset.theme = theme;
  root.style.colorScheme = theme;
  byId("theme").textContent = NAMES[THEMES.indexOf(theme)];
}
