// Sends a picture that is dropped, pasted, chosen or taken to the model, and shows its classes. No library.
// All texts come from untrusted files: they are only ever set as text, never as HTML.
import { draw, make, percent } from "./serve_curves.js";

const find = (selector) => document.querySelector(selector);
const { token, largest } = document.body.dataset;
const MOST_SENT = 4;
let last = 0; // only the answer for the last picture is shown

function say(text, isError = false) {
  const state = find("#state");
  state.textContent = text;
  state.classList.toggle("error", isError);
}

function fail(text) {
  document.body.classList.remove("busy");
  find("#answer").hidden = find("#similar").hidden = true;
  say(text, true);
}

async function classify(picture) {
  const number = ++last;
  if (!picture) return fail("That is not a picture file; save it first and drop the file.");
  if (!picture.size) return fail("This picture is empty.");
  if (picture.size > Number(largest)) return fail(`This picture is too large; at most ${largest >> 20} MB are read.`);
  say("Classifying; the first picture takes longer, as the model is loaded.");
  document.body.classList.add("busy");
  const headers = { "Content-Type": picture.type || "application/octet-stream", "X-Evenhand-Token": token };
  let answer = null;
  for (let sent = 0; sent < MOST_SENT && (answer === null || answer.busy); sent++) {
    answer = await send(picture, headers);
    if (number !== last) return;
  }
  if (answer.error) return fail(answer.error);
  document.body.classList.remove("busy");
  show(answer);
}

async function send(picture, headers) {
  try {
    const reply = await fetch(location.pathname, { method: "POST", headers, body: picture });
    const known = await reply.json().catch(() => ({ error: `The server refused the picture (${reply.status}).` }));
    return { ...known, busy: reply.status === 503 }; // a large model is still loading
  } catch {
    return { error: "The server does not answer, or closed the connection; see its terminal and try again." };
  }
}

function show(answer) {
  say(`${answer.classes[0].name}, ${percent(answer.classes[0].probability)}`);
  find("#model").textContent = `${answer.objective}: ${answer.run}`;
  sharp(find("#seen")).src = answer.seen;
  const body = make("tbody", {}, ...answer.classes.map(rowOf));
  find("#classes").replaceChildren(make("table", {}, make("caption", {}, "Most probable classes."), body));
  find("#pictures").replaceChildren(...answer.similar.map((each) => pictureOf(each, answer.classes[0].name)));
  find("#answer").hidden = false;
  find("#similar").hidden = answer.similar.length === 0;
}

// The few pixels of a small image stay sharp.
function sharp(image) {
  image.addEventListener("load", () => image.classList.toggle("small", image.naturalHeight <= 64));
  return image;
}

function rowOf({ name, probability, train_count, recall, test_count }) {
  const head = make("th", { scope: "row" }, name);
  const facts = [];
  if (train_count !== null) facts.push(`${train_count.toLocaleString("en")} training images`);
  if (recall !== null) {
    const right = Math.round(recall * test_count).toLocaleString("en");
    facts.push(`${right} of ${test_count.toLocaleString("en")} test images of this run right`);
  }
  if (facts.length) head.append(make("small", {}, facts.join(", ")));
  const bar = draw("rect", { x: 0, y: 0, width: 100 * probability, height: 10 });
  const svg = draw("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, bar);
  return make("tr", {}, head, make("td", {}, percent(probability)), make("td", { class: "share" }, svg));
}

function pictureOf({ image, id, class: name, similarity }, best) {
  const shown = sharp(make("img", { alt: id, title: id }));
  shown.src = image;
  const line = make("p", { class: name === best ? "same" : "" }, name);
  return make("li", {}, shown, line, make("p", { class: "quiet" }, similarity.toFixed(2)));
}

// ---- Where pictures come from

function firstOf(transfer) {
  const files = [...(transfer?.files ?? [])];
  return files.find((file) => file.type.startsWith("image/")) ?? files[0];
}

const place = find("#give");
place.hidden = false;
for (const name of ["dragenter", "dragover"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault(); // or the browser would open the file
    place.classList.add("over");
  });
}
document.addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) place.classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  place.classList.remove("over");
  classify(firstOf(event.dataTransfer));
});
document.addEventListener("paste", (event) => {
  event.preventDefault();
  classify(firstOf(event.clipboardData));
});
find("#file").addEventListener("change", ({ target }) => {
  if (target.files.length) classify(target.files[0]);
  target.value = ""; // the same file can be chosen again
});

// ---- The camera

const video = find("#video");

function stop() {
  for (const track of video.srcObject?.getTracks() ?? []) track.stop();
  video.srcObject = null;
  find("#view").hidden = true;
}

find("#camera").hidden = !navigator.mediaDevices?.getUserMedia; // browsers offer it on localhost and https alone
find("#camera").addEventListener("click", async () => {
  try {
    stop();
    video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    find("#view").hidden = false;
  } catch (error) {
    say(`The camera cannot be used: ${error.message || error.name}.`, true);
  }
});
find("#stop").addEventListener("click", stop);
find("#shoot").addEventListener("click", () => {
  if (!video.videoWidth) return say("The camera has no picture yet; wait a moment.", true);
  const canvas = make("canvas", { width: video.videoWidth, height: video.videoHeight });
  canvas.getContext("2d").drawImage(video, 0, 0);
  stop();
  canvas.toBlob(classify, "image/jpeg", 0.95);
});
