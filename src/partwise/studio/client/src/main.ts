import { mount } from "svelte";
import App from "./App.svelte";
import "./tokens.css";
import "./base.css";
import { display } from "./lib/display.svelte";
import { exported } from "./lib/exported";
import { isLanguageChosen, language, setLanguage } from "./lib/i18n";

display.apply();
if (exported?.language && !isLanguageChosen()) setLanguage(exported.language, false);
else setLanguage(language(), false);

const target = document.getElementById("app");
if (target) mount(App, { target });
