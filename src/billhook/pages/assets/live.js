// Refreshes the content of a page while someone looks at it. The page works without this file.
"use strict";
const MILLISECONDS = 5000;
const main = document.getElementById("main"), button = document.createElement("button");
let edited = false, timer = 0;

const isOn = () => sessionStorage.getItem("billhook-live") !== "off" && !edited;
const isFree = () => isOn() && !document.hidden && getSelection().isCollapsed
  && !document.activeElement.matches("input:not([type=checkbox]), select, textarea");
const show = (text = "Live") => Object.assign(button, {textContent: text, ariaPressed: String(isOn())});
function* parts() {  // what has a state to keep, by what stays the same when numbers in its text change
  const counts = {};
  for (const each of main.querySelectorAll("a[href], button, summary, input, select, textarea, [tabindex]")) {
    const text = each.ariaLabel || each.value || each.textContent.replace(/\d+/g, "");
    const key = [each.tagName, each.getAttribute("href") || each.name, text].join(" ");
    counts[key] = (counts[key] || 0) + 1;
    yield [`${key} ${counts[key]}`, each, {focus: each === document.activeElement, checked: each.checked,
      open: each.parentElement.open, at: [each.scrollLeft, each.scrollTop], top: each.getBoundingClientRect().top}];
  }
}
function replace(page) {
  const before = new Map([...parts()].map(([key, , state]) => [key, state]));
  const notice = main.querySelector("[role=status]");
  main.replaceChildren(...page.getElementById("main").childNodes);
  if (notice && !main.querySelector("[role=status]")) main.prepend(notice);
  let isPlaced = scrollY === 0;  // else what is in view stays where it is when rows come in above it
  for (const [key, each] of [...parts()]) {
    const was = before.get(key) || {};
    if (each.type === "checkbox") each.checked = Boolean(was.checked);
    if (each.matches("summary") && was.at) each.parentElement.open = was.open;
    if (was.at) each.scrollTo(...was.at);
    if (was.focus) each.focus({preventScroll: true});
    if (!isPlaced && was.top >= 0) isPlaced = !scrollBy(0, each.getBoundingClientRect().top - was.top);
  }
}
async function refresh() {
  clearTimeout(timer);
  timer = setTimeout(refresh, MILLISECONDS);
  if (!isFree()) return;
  try {
    const answer = await fetch(location.href, {redirect: "error"});
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok) throw new Error(answer.statusText);
    if (isFree()) replace(page);
    show();
  } catch {
    show("Live: no answer");
  }
}
Object.assign(button, {type: "button", className: "live", onclick: () => {
  sessionStorage.setItem("billhook-live", isOn() ? "off" : "on");
  edited = false;
  show();
  refresh();
}});
main.oninput = (event) => {
  if (event.target.matches(".all")) main.querySelectorAll(".pick input").forEach((each) => { each.checked = event.target.checked; });
  if (event.target.type !== "checkbox") { edited = true; show(); } };
document.onvisibilitychange = refresh;
document.querySelector(".visitor").before(button);
show();
timer = setTimeout(refresh, MILLISECONDS);
