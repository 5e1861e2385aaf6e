//! Login pages, read and filled in by the agent.
//!
//! Everything goes over a connection of its own: a reading waits for as long as it is told to, and a value is held by nobody but the
//! agent that types it.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::client::ClientError;
use casement_agent_protocol::login_page::{self as words, ACT, OPEN, PICTURE, READ, SecretText};
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::BrowserId;
use casement_domain::login_page::{
    Act, Button, ButtonKind, Captcha, Frame, Handle, Input, Key, Layer, LoginPageError, LoginPages, MAX_BUTTONS,
    MAX_FRAMES, MAX_INPUTS, MAX_LABEL, MAX_LAYERS, MAX_OPTIONS, MAX_TEXT, MAX_TEXTS, MAX_URL, Mark, ReadCondition,
    Reading, Text, TextKind, clean,
};
use futures_util::TryStreamExt as _;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::Engine;
use crate::fault::failed;

/// Beyond the time that an operation itself waits, on a machine under load.
const AROUND: Duration = Duration::from_secs(30);
/// The beginning of a document, and the longest that acts take.
const WORK: Duration = Duration::from_secs(60);
/// Longest answer, and longest picture.
const MAX_ANSWER: usize = 4 << 20;
const MAX_PICTURE: usize = 64 << 20;
/// Longest name of an element.
const MOST_HANDLE: usize = 200;
/// Captchas that are told of.
const MOST_CAPTCHAS: usize = 10;

#[async_trait]
impl LoginPages for Engine {
    async fn open(&self, browser: BrowserId, url: &str) -> Result<(), LoginPageError> {
        let asked = words::OpenPage { url: url.to_owned() };
        done(self.asked(browser, OPEN, &asked, WORK).await?)
    }

    async fn read(&self, browser: BrowserId, wait: ReadCondition) -> Result<Reading, LoginPageError> {
        let within = wait.within.min(Duration::from_millis(words::MAX_WAIT_MS));
        let asked = words::ReadPage {
            differs_from: wait.differs_from.map(|mark| mark.0),
            within_ms: u64::try_from(within.as_millis()).unwrap_or(words::MAX_WAIT_MS),
        };
        let told: words::Reading = self.asked(browser, READ, &asked, within + AROUND).await?;
        match told.failed {
            Some(reason) => Err(LoginPageError::NavigationFailed { reason: clean(&reason, MAX_LABEL) }),
            None => Ok(reading(told)),
        }
    }

    async fn act(&self, browser: BrowserId, acts: Vec<Act>) -> Result<(), LoginPageError> {
        let asked = words::ActRequest { acts: acts.into_iter().map(act).collect() };
        done(self.asked(browser, ACT, &asked, WORK).await?)
    }

    async fn screenshot(&self, browser: BrowserId) -> Result<Vec<u8>, LoginPageError> {
        Ok(self.bytes(browser, PICTURE, &serde_json::json!({}), WORK, MAX_PICTURE).await?)
    }
}

impl Engine {
    async fn asked<T: DeserializeOwned>(
        &self,
        browser: BrowserId,
        path: &'static str,
        asked: &(impl Serialize + Sync),
        within: Duration,
    ) -> Result<T, EngineError> {
        let bytes = self.bytes(browser, path, asked, within, MAX_ANSWER).await?;
        serde_json::from_slice(&bytes)
            .map_err(|_| failed(EngineFault::AgentError, "the agent told of a login page what cannot be"))
    }

    async fn bytes(
        &self,
        browser: BrowserId,
        path: &'static str,
        asked: &(impl Serialize + Sync),
        within: Duration,
        most: usize,
    ) -> Result<Vec<u8>, EngineError> {
        let running = self.running(browser)?;
        let answer = async {
            let answer = running.agent.download(path, asked, within).await?;
            let bytes = answer.try_fold(Vec::new(), |mut all, part| async move {
                if all.len() + part.len() > most {
                    return Err(ClientError::TooLong);
                }
                all.extend_from_slice(&part);
                Ok(all)
            });
            tokio::time::timeout(within, bytes).await.unwrap_or(Err(ClientError::Timeout(within)))
        };
        answer.await.map_err(|error| running.failed(&error))
    }
}

fn done(done: words::Done) -> Result<(), LoginPageError> {
    match done.fault {
        None => Ok(()),
        Some(words::Fault::Navigation { reason }) => {
            Err(LoginPageError::NavigationFailed { reason: clean(&reason, MAX_LABEL) })
        }
        Some(words::Fault::Stale { handle }) => Err(LoginPageError::Stale(Handle(clean(&handle, MOST_HANDLE)))),
        Some(words::Fault::WrongOrigin { wanted, found }) => {
            Err(LoginPageError::WrongOrigin { wanted: clean(&wanted, MAX_URL), found: clean(&found, MAX_URL) })
        }
        Some(words::Fault::NotUsable { reason }) => Err(LoginPageError::NotUsable(clean(&reason, MAX_TEXT))),
        Some(words::Fault::Hangs { seconds }) => Err(LoginPageError::Hangs { seconds }),
    }
}

fn act(act: Act) -> words::Act {
    match act {
        Act::Fill { into, text, origin } => {
            words::Act::Fill { into: into.0, text: SecretText(text.expose_secret().to_owned()), origin }
        }
        Act::FillCode { into, code, origin } => {
            let into = into.into_iter().map(|handle| handle.0).collect();
            words::Act::FillCode { into, code: SecretText(code.expose_secret().to_owned()), origin }
        }
        Act::Check { what, on } => words::Act::Check { what: what.0, on },
        Act::Choose { from, option, origin } => words::Act::Choose { from: from.0, option, origin },
        Act::Click { what, window } => words::Act::Click { what: what.0, window },
        Act::Press { on, key } => {
            let key = match key {
                Key::Enter => words::Key::Enter,
                Key::Escape => words::Key::Escape,
            };
            words::Act::Press { on: on.map(|on| on.0), key }
        }
    }
}

/// A page in the domain's words. What runs in the sandbox is not believed more than the page.
fn reading(told: words::Reading) -> Reading {
    let frames: Vec<Frame> = told
        .frames
        .into_iter()
        .take(MAX_FRAMES)
        .map(|frame| Frame { origin: clean(&frame.origin, MAX_URL), url: clean(&frame.url, MAX_URL) })
        .collect();
    let layers: Vec<Layer> = told
        .layers
        .into_iter()
        .take(MAX_LAYERS)
        .map(|layer| Layer { marks: clean(&layer.marks, MAX_TEXT), dialog: layer.dialog })
        .collect();
    let (some_frames, some_layers) = (frames.len(), layers.len());
    let seen = |frame: usize| frame < some_frames;
    let layer = |layer: Option<usize>| layer.filter(|layer| *layer < some_layers);
    let captchas = told.captchas.into_iter().take(MOST_CAPTCHAS);
    Reading {
        url: clean(&told.url, MAX_URL),
        title: clean(&told.title, MAX_TEXT),
        language: clean(&told.language, 20),
        status: told.status,
        inputs: told
            .inputs
            .into_iter()
            .filter(|one| seen(one.frame))
            .take(MAX_INPUTS)
            .map(|one| input(one, layer))
            .collect(),
        buttons: told
            .buttons
            .into_iter()
            .filter(|one| seen(one.frame))
            .take(MAX_BUTTONS)
            .map(|one| button(one, layer))
            .collect(),
        texts: told
            .texts
            .into_iter()
            .filter(|one| seen(one.frame))
            .take(MAX_TEXTS)
            .map(|one| text(one, layer))
            .collect(),
        captchas: captchas
            .map(|captcha| Captcha {
                kind: clean(&captcha.kind, 40),
                blocking: captcha.blocking,
                solved: captcha.solved,
            })
            .collect(),
        frames,
        layers,
        settled: told.settled,
        cut: told.cut,
        mark: Mark(clean(&told.mark, 64)),
    }
}

fn input(told: words::Input, layer: impl Fn(Option<usize>) -> Option<usize>) -> Input {
    let label = |text: &str| clean(text, MAX_LABEL);
    Input {
        place: told.place,
        handle: Handle(clean(&told.handle, MOST_HANDLE)),
        frame: told.frame,
        form: told.form,
        kind: clean(&told.kind, 20),
        name: label(&told.name),
        id: label(&told.id),
        label: label(&told.label),
        placeholder: label(&told.placeholder),
        hint: label(&told.hint),
        autocomplete: label(&told.autocomplete),
        mode: clean(&told.mode, 20),
        max_length: told.max_length,
        required: told.required,
        invalid: told.invalid,
        filled: told.filled,
        disabled: told.disabled,
        visible: told.visible,
        layer: layer(told.layer),
        covered: told.covered,
        options: told.options.iter().take(MAX_OPTIONS).map(|option| label(option)).collect(),
        selector: clean(&told.selector, MAX_TEXT),
    }
}

fn button(told: words::Button, layer: impl Fn(Option<usize>) -> Option<usize>) -> Button {
    Button {
        place: told.place,
        handle: Handle(clean(&told.handle, MOST_HANDLE)),
        frame: told.frame,
        form: told.form,
        kind: match told.kind.as_str() {
            "submit" => ButtonKind::Submit,
            "link" => ButtonKind::Link,
            "item" => ButtonKind::Item,
            "radio" => ButtonKind::Radio,
            _ => ButtonKind::Button,
        },
        label: clean(&told.label, MAX_LABEL),
        description: clean(&told.description, MAX_LABEL),
        marks: clean(&told.marks, MAX_TEXT),
        href: clean(&told.href, MAX_URL),
        disabled: told.disabled,
        layer: layer(told.layer),
        covered: told.covered,
        selector: clean(&told.selector, MAX_TEXT),
        xpath: clean(&told.xpath, MAX_TEXT),
    }
}

fn text(told: words::Text, layer: impl Fn(Option<usize>) -> Option<usize>) -> Text {
    let kind = match told.kind.as_str() {
        "heading" => TextKind::Heading,
        "alert" => TextKind::Alert,
        "error" => TextKind::Error,
        _ => TextKind::Plain,
    };
    Text { place: told.place, frame: told.frame, kind, text: clean(&told.text, MAX_TEXT), layer: layer(told.layer) }
}
