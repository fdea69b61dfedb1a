// Light or dark, and for whom a page is; read before it is drawn, so that nothing flashes.
(() => {
  const root = document.documentElement;
  const read = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const saved = read();
  if (saved === "light" || saved === "dark") root.dataset.theme = saved;
  // who judges sees neither the other pages nor their names
  if (new URLSearchParams(location.search).has("token")) root.dataset.rating = "";
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (!button) return;
    const isDark = () => root.dataset.theme
      ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch { /* not kept */ }
    });
  });
})();
