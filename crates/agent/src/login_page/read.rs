//! Reads the content of a page from all its documents.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};

use super::frames::{Document, Owner};
use super::tab::{Attached, Tab};
use crate::cdp::CdpError;
use crate::egress;
use crate::telemetry::captcha_kind;
use casement_agent_protocol::login_page::{Button, Captcha, Frame, Input, Layer, Reading, Text};

/// The timeout of reading one document.
const DOCUMENT: Duration = Duration::from_secs(8);
/// The timeout of one call that locates a frame or a shadow root.
const PLACE: Duration = Duration::from_secs(2);
/// The maximum number of repeated reads of a document after closed shadow roots were found, which may be nested.
const DEPTH: usize = 3;
/// The limits of a reading. `MAX_SIZE` is the approximate size of one document's content, in characters.
const MAX_INPUTS: usize = 80;
const MAX_BUTTONS: usize = 200;
const MAX_TEXTS: usize = 120;
const MAX_LAYERS: usize = 20;
const MAX_SIZE: usize = 120_000;
/// The frame of a captcha blocks the page if it takes more than this part of the viewport.
const LARGE: f64 = 0.12;

/// The content of a document as the script reports it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReportedDocument {
    url: String,
    origin: String,
    title: String,
    language: String,
    status: Option<u16>,
    inputs: Vec<ReportedInput>,
    buttons: Vec<ReportedButton>,
    texts: Vec<Text>,
    layers: Vec<Layer>,
    captchas: Vec<Captcha>,
    cut: bool,
    suspects: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReportedInput {
    #[serde(rename = "handle")]
    number: u64,
    #[serde(flatten)]
    input: InputRest,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReportedButton {
    #[serde(rename = "handle")]
    number: u64,
    #[serde(flatten)]
    button: ButtonRest,
}

type InputRest = serde_json::Map<String, Value>;
type ButtonRest = serde_json::Map<String, Value>;

/// The position of a frame in the document that contains it.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
struct Place {
    visible: bool,
    covered: bool,
    layer: Option<usize>,
    solved: bool,
    width: f64,
    height: f64,
    of: f64,
    #[serde(skip)]
    document: usize,
}

impl Tab {
    /// Reads the current content of the page.
    pub(super) async fn read(&self, page: &Attached, is_settled: bool) -> Result<Reading, CdpError> {
        let documents = self.documents(page, DOCUMENT).await?;
        let reported = join_all(documents.iter().map(|document| self.report(document))).await;
        // The positions of frames are read after the documents, because the reading of a document numbers its layers.
        let places = join_all((0..documents.len()).map(|at| self.place(&documents, at))).await;
        let mut merged = Merged { reading: Reading { settled: is_settled, ..Reading::default() }, ..Merged::default() };
        for ((document, reported), at) in documents.iter().zip(reported).zip(0..) {
            match reported {
                Ok(reported) => merged.add(document, reported, at, &places),
                Err(error) if at == 0 => return Err(error),
                Err(_) => merged.reading.cut = true,
            }
        }
        let mut reading = merged.reading;
        for dialog in self.dialogs() {
            reading.texts.push(Text { kind: "alert".to_owned(), text: dialog, ..Text::default() });
        }
        if documents.first().is_some_and(|document| document.url.starts_with("chrome-error:")) {
            reading.failed = Some(self.failed(page).unwrap_or_else(|| "net::ERR_FAILED".to_owned()));
        } else if let Some(given) = of_the_way_out(&reading) {
            reading.failed = Some(given.to_owned());
        }
        reading.mark = mark(&page.target, &documents, &reading);
        Ok(reading)
    }

    async fn report(&self, document: &Document) -> Result<ReportedDocument, CdpError> {
        let limits = json!({
            "nodes": 12_000, "size": MAX_SIZE, "inputs": MAX_INPUTS, "buttons": MAX_BUTTONS, "texts": MAX_TEXTS,
            "layers": MAX_LAYERS, "label": 160, "text": 400, "options": 60, "suspects": 40,
        });
        let mut looked = 0;
        loop {
            let value = self.ask(document, "read", std::slice::from_ref(&limits), DOCUMENT).await?;
            let reported: ReportedDocument = serde_json::from_value(value)
                .map_err(|error| CdpError::Refused { method: "read", message: error.to_string() })?;
            looked += 1;
            if reported.suspects == 0 || looked > DEPTH || !self.open_shadows(document, reported.suspects).await {
                return Ok(reported);
            }
        }
    }

    /// Searches suspected elements for closed shadow roots; returns true if a new one was found.
    async fn open_shadows(&self, document: &Document, suspects: usize) -> bool {
        let found = join_all((0..suspects.min(40)).map(|at| self.open_shadow(document, at))).await;
        found.into_iter().flatten().any(|()| true)
    }

    async fn open_shadow(&self, document: &Document, at: usize) -> Option<()> {
        let session = Some(document.session.as_str());
        let host = self.object(document, "suspect", &[json!(at)], PLACE).await.ok()??;
        let requested = json!({ "objectId": host, "depth": 0 });
        let described = self.cdp.call(session, "DOM.describeNode", requested, PLACE).await.ok()?;
        let roots = described["node"]["shadowRoots"].as_array()?;
        let root = roots.iter().find(|root| root["shadowRootType"] == "closed")?["backendNodeId"].as_i64()?;
        let root = self.resolve(document, root, PLACE).await?;
        let pair = [json!({ "objectId": host }), json!({ "objectId": root })];
        self.ask(document, "keep", &pair, PLACE).await.ok().map(drop)
    }

    async fn place(&self, documents: &[Document], at: usize) -> Option<Place> {
        let Owner { document, object, .. } = self.owner(documents, at, PLACE).await?;
        let reported =
            self.ask(documents.get(document)?, "owner", &[json!({ "objectId": object })], PLACE).await.ok()?;
        serde_json::from_value(reported).ok().map(|place| Place { document, ..place })
    }
}

#[derive(Default)]
struct Merged {
    reading: Reading,
    /// The number of forms so far.
    forms: usize,
    /// The state of each document; `None` for a document that is not visible.
    shown: Vec<Option<VisibleState>>,
}

/// The first layer of a visible document, the layer that contains it, and whether it is covered.
#[derive(Clone, Copy)]
struct VisibleState {
    layers: usize,
    within: Option<usize>,
    covered: bool,
}

impl Merged {
    fn add(&mut self, document: &Document, reported: ReportedDocument, at: usize, places: &[Option<Place>]) {
        self.shown.resize(at, None);
        let Some(shown) = self.placed(document, &reported, at, places) else { return };
        self.shown.push(Some(shown));
        let reading = &mut self.reading;
        let frame = reading.frames.len();
        // Larger than the number of places in a document.
        let base = frame * 1000;
        if frame == 0 {
            reading.url.clone_from(&reported.url);
            reading.title = reported.title;
            reading.language = reported.language;
            reading.status = reported.status;
        }
        reading.frames.push(Frame { origin: reported.origin, url: reported.url });
        let layer = |own: Option<usize>| own.map(|own| own + shown.layers).or(shown.within);
        let name = |number: u64| format!("{}:{}:{number}", document.frame, document.loader);
        let mut forms = self.forms;
        let mut form = |own: Option<usize>| {
            own.map(|own| {
                forms = forms.max(self.forms + own + 1);
                self.forms + own
            })
        };
        for ReportedInput { number, input } in reported.inputs {
            let Ok(read) = serde_json::from_value::<Input>(Value::Object(input)) else { continue };
            let covered = read.covered || shown.covered;
            let (form, layer) = (form(read.form), layer(read.layer));
            reading.inputs.push(Input {
                place: read.place + base,
                handle: name(number),
                frame,
                form,
                layer,
                covered,
                ..read
            });
        }
        for ReportedButton { number, button } in reported.buttons {
            let Ok(read) = serde_json::from_value::<Button>(Value::Object(button)) else { continue };
            let covered = read.covered || shown.covered;
            let (form, layer) = (form(read.form), layer(read.layer));
            reading.buttons.push(Button {
                place: read.place + base,
                handle: name(number),
                frame,
                form,
                layer,
                covered,
                ..read
            });
        }
        reading.texts.extend(reported.texts.into_iter().map(|text| Text {
            place: text.place + base,
            frame,
            layer: layer(text.layer),
            ..text
        }));
        reading.layers.extend(reported.layers);
        reading.captchas.extend(reported.captchas);
        reading.cut |= reported.cut;
        self.forms = forms;
        bound(&mut self.reading);
    }

    /// Returns the state of a document; `None` if it is not visible. Adds the captcha of a frame, if it shows one.
    fn placed(
        &mut self,
        document: &Document,
        reported: &ReportedDocument,
        at: usize,
        places: &[Option<Place>],
    ) -> Option<VisibleState> {
        let layers = self.reading.layers.len();
        let Some(place) = places.get(at).and_then(Option::as_ref) else {
            return (at == 0).then_some(VisibleState { layers, within: None, covered: false });
        };
        let around = self.shown.get(place.document).copied().flatten()?;
        if !place.visible {
            return None;
        }
        if let Some(kind) = captcha_kind(&document.url) {
            let challenge = document.url.contains("/bframe") || document.url.contains("frame=challenge");
            let blocking = challenge || place.width * place.height > place.of * LARGE;
            if kind != "recaptcha_v3" || challenge {
                let kind = kind.trim_end_matches("_v2").trim_end_matches("_v3").to_owned();
                self.reading.captchas.push(Captcha { kind, blocking, solved: place.solved });
            }
        }
        let within = place.layer.map(|own| own + around.layers).or(around.within);
        let nothing = reported.inputs.is_empty() && reported.buttons.is_empty() && reported.texts.is_empty();
        (!nothing).then_some(VisibleState { layers, within, covered: around.covered || place.covered })
    }
}

/// Returns the error of the egress that the page shows in place of a site.
fn of_the_way_out(reading: &Reading) -> Option<&str> {
    let bare = reading.title.is_empty() && reading.inputs.is_empty() && reading.buttons.is_empty();
    match &reading.texts[..] {
        [only] if bare && reading.url.starts_with("http://") && egress::is_shown(&only.text) => Some(&only.text),
        _ => None,
    }
}

/// Truncates the content of several documents to the limits of a reading.
fn bound(reading: &mut Reading) {
    fn cut<T>(list: &mut Vec<T>, max: usize) -> bool {
        let more = list.len() > max;
        list.truncate(max);
        more
    }
    let more = [
        cut(&mut reading.inputs, MAX_INPUTS),
        cut(&mut reading.buttons, MAX_BUTTONS),
        cut(&mut reading.texts, MAX_TEXTS),
        cut(&mut reading.layers, MAX_LAYERS),
        cut(&mut reading.captchas, 10),
    ];
    reading.cut |= more.contains(&true);
    let layers = reading.layers.len();
    let known = |layer: &mut Option<usize>| *layer = layer.filter(|layer| *layer < layers);
    reading.inputs.iter_mut().for_each(|input| known(&mut input.layer));
    reading.buttons.iter_mut().for_each(|button| known(&mut button.layer));
    reading.texts.iter_mut().for_each(|text| known(&mut text.layer));
}

/// Returns a digest that is equal for readings with the same content. It ignores the values of fields, and the digits
/// in labels and texts of more than six characters, which may be counters.
fn mark(target: &str, documents: &[Document], reading: &Reading) -> String {
    let counts = |text: &str| {
        if text.chars().count() > 6 { text.replace(|c: char| c.is_ascii_digit(), "0") } else { text.to_owned() }
    };
    let mut hasher = DefaultHasher::new();
    (target, &reading.url, &reading.title).hash(&mut hasher);
    if let Some(page) = documents.first() {
        (&page.frame, &page.loader).hash(&mut hasher);
    }
    for frame in &reading.frames {
        (&frame.origin, &frame.url).hash(&mut hasher);
    }
    for input in &reading.inputs {
        (&input.handle, &input.kind, &input.label, input.visible, input.disabled, input.covered).hash(&mut hasher);
    }
    for button in &reading.buttons {
        (&button.handle, counts(&button.label), button.disabled, button.covered).hash(&mut hasher);
    }
    for text in &reading.texts {
        (&text.kind, counts(&text.text)).hash(&mut hasher);
    }
    for captcha in &reading.captchas {
        (&captcha.kind, captcha.blocking, captcha.solved).hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}
