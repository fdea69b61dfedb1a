// The key of the server: asked for once, kept as a cookie that scripts cannot read.

import { logIn } from "./api.js";
import { makeError } from "./dom.js";

const form = document.getElementById("login");
const key = document.getElementById("key");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await logIn(key.value);
    location.reload(); // the address is that of the page which was asked for, settings and all
  } catch (error) {
    key.value = "";
    key.focus();
    document.getElementById("error").replaceChildren(makeError(error));
  }
});
