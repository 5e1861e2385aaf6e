//! Login pages, read and filled in by the agent.
//!
//! Each request uses a connection of its own: a read waits as long as requested, and only the agent that types a secret
//! holds it.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_agent_protocol::client::ClientError;
use casement_agent_protocol::login_page::{self as wire, ACT, OPEN, PICTURE, READ, SecretText};
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::BrowserId;
use casement_domain::login_page::{
    Act, Button, ButtonKind, Captcha, Frame, Handle, Input, Key, Layer, LoginPageError, LoginPages, MAX_BUTTONS,
    MAX_FRAMES, MAX_INPUTS, MAX_LABEL, MAX_LAYERS, MAX_OPTIONS, MAX_TEXT, MAX_TEXTS, MAX_URL, Mark, ReadCondition,
    Reading, Text, TextKind, clean,
};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::Engine;
use crate::fault::failed;

/// Added to the operation's own wait, for a machine under load.
const LOAD_GRACE: Duration = Duration::from_secs(30);
/// The timeout of opening a document, and of the longest acts.
const WORK_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest response and the longest screenshot, in bytes.
const MAX_RESPONSE: usize = 4 << 20;
const MAX_PICTURE: usize = 64 << 20;
/// The longest handle of an element, in characters.
const MAX_HANDLE: usize = 200;
/// The maximum number of captchas of one response.
const MAX_CAPTCHAS: usize = 10;

#[async_trait]
impl LoginPages for Engine {
    async fn open(&self, browser: BrowserId, url: &str) -> Result<(), LoginPageError> {
        let request = wire::OpenPage { url: url.to_owned() };
        done(self.request(browser, OPEN, &request, WORK_TIMEOUT).await?)
    }

    async fn read(&self, browser: BrowserId, wait: ReadCondition) -> Result<Reading, LoginPageError> {
        let within = wait.within.min(Duration::from_millis(wire::MAX_WAIT_MS));
        let request = wire::ReadPage {
            differs_from: wait.differs_from.map(|mark| mark.0),
            within_ms: u64::try_from(within.as_millis()).unwrap_or(wire::MAX_WAIT_MS),
        };
        let received: wire::Reading = self.request(browser, READ, &request, within + LOAD_GRACE).await?;
        match received.failed {
            Some(reason) => Err(LoginPageError::NavigationFailed { reason: clean(&reason, MAX_LABEL) }),
            None => Ok(reading(received)),
        }
    }

    async fn act(&self, browser: BrowserId, acts: Vec<Act>) -> Result<(), LoginPageError> {
        let request = wire::ActRequest { acts: acts.into_iter().map(act).collect() };
        done(self.request(browser, ACT, &request, WORK_TIMEOUT).await?)
    }

    async fn screenshot(&self, browser: BrowserId) -> Result<Vec<u8>, LoginPageError> {
        Ok(self.bytes(browser, PICTURE, &serde_json::json!({}), WORK_TIMEOUT, MAX_PICTURE).await?.into())
    }
}

impl Engine {
    async fn request<T: DeserializeOwned>(
        &self,
        browser: BrowserId,
        path: &'static str,
        request: &(impl Serialize + Sync),
        within: Duration,
    ) -> Result<T, EngineError> {
        let bytes = self.bytes(browser, path, request, within, MAX_RESPONSE).await?;
        serde_json::from_slice(&bytes)
            .map_err(|_| failed(EngineFault::AgentError, "the agent sent an invalid reading of a login page"))
    }

    async fn bytes(
        &self,
        browser: BrowserId,
        path: &'static str,
        request: &(impl Serialize + Sync),
        within: Duration,
        max_bytes: usize,
    ) -> Result<Bytes, EngineError> {
        let running = self.running(browser)?;
        let answer = async {
            let bytes = running.agent.download(path, request, within).await?.collect(max_bytes);
            tokio::time::timeout(within, bytes).await.unwrap_or(Err(ClientError::Timeout(within)))
        };
        answer.await.map_err(|error| running.failed(&error))
    }
}

fn done(done: wire::Done) -> Result<(), LoginPageError> {
    match done.fault {
        None => Ok(()),
        Some(wire::Fault::Navigation { reason }) => {
            Err(LoginPageError::NavigationFailed { reason: clean(&reason, MAX_LABEL) })
        }
        Some(wire::Fault::Stale { handle }) => Err(LoginPageError::Stale(Handle(clean(&handle, MAX_HANDLE)))),
        Some(wire::Fault::WrongOrigin { wanted, found }) => {
            Err(LoginPageError::WrongOrigin { wanted: clean(&wanted, MAX_URL), found: clean(&found, MAX_URL) })
        }
        Some(wire::Fault::NotUsable { reason }) => Err(LoginPageError::NotUsable(clean(&reason, MAX_TEXT))),
        Some(wire::Fault::Hangs { seconds }) => Err(LoginPageError::Hangs { seconds }),
    }
}

fn act(act: Act) -> wire::Act {
    match act {
        Act::Fill { into, text, origin } => {
            wire::Act::Fill { into: into.0, text: SecretText(text.expose_secret().to_owned()), origin }
        }
        Act::FillCode { into, code, origin } => {
            let into = into.into_iter().map(|handle| handle.0).collect();
            wire::Act::FillCode { into, code: SecretText(code.expose_secret().to_owned()), origin }
        }
        Act::Check { what, on } => wire::Act::Check { what: what.0, on },
        Act::Choose { from, option, origin } => wire::Act::Choose { from: from.0, option, origin },
        Act::Click { what, window } => wire::Act::Click { what: what.0, window },
        Act::Press { on, key } => {
            let key = match key {
                Key::Enter => wire::Key::Enter,
                Key::Escape => wire::Key::Escape,
            };
            wire::Act::Press { on: on.map(|on| on.0), key }
        }
    }
}

/// Converts a page to the domain's values. Bounds everything, because the sandbox is as untrusted as the page.
fn reading(received: wire::Reading) -> Reading {
    let frames: Vec<Frame> = received
        .frames
        .into_iter()
        .take(MAX_FRAMES)
        .map(|frame| Frame { origin: clean(&frame.origin, MAX_URL), url: clean(&frame.url, MAX_URL) })
        .collect();
    let layers: Vec<Layer> = received
        .layers
        .into_iter()
        .take(MAX_LAYERS)
        .map(|layer| Layer { marks: clean(&layer.marks, MAX_TEXT), dialog: layer.dialog })
        .collect();
    let (some_frames, some_layers) = (frames.len(), layers.len());
    let seen = |frame: usize| frame < some_frames;
    let layer = |layer: Option<usize>| layer.filter(|layer| *layer < some_layers);
    let captchas = received.captchas.into_iter().take(MAX_CAPTCHAS);
    Reading {
        url: clean(&received.url, MAX_URL),
        title: clean(&received.title, MAX_TEXT),
        language: clean(&received.language, 20),
        status: received.status,
        inputs: received
            .inputs
            .into_iter()
            .filter(|one| seen(one.frame))
            .take(MAX_INPUTS)
            .map(|one| input(one, layer))
            .collect(),
        buttons: received
            .buttons
            .into_iter()
            .filter(|one| seen(one.frame))
            .take(MAX_BUTTONS)
            .map(|one| button(one, layer))
            .collect(),
        texts: received
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
        settled: received.settled,
        cut: received.cut,
        mark: Mark(clean(&received.mark, 64)),
    }
}

fn input(received: wire::Input, layer: impl Fn(Option<usize>) -> Option<usize>) -> Input {
    let label = |text: &str| clean(text, MAX_LABEL);
    Input {
        place: received.place,
        handle: Handle(clean(&received.handle, MAX_HANDLE)),
        frame: received.frame,
        form: received.form,
        kind: clean(&received.kind, 20),
        name: label(&received.name),
        id: label(&received.id),
        label: label(&received.label),
        placeholder: label(&received.placeholder),
        hint: label(&received.hint),
        autocomplete: label(&received.autocomplete),
        mode: clean(&received.mode, 20),
        max_length: received.max_length,
        required: received.required,
        invalid: received.invalid,
        filled: received.filled,
        disabled: received.disabled,
        visible: received.visible,
        layer: layer(received.layer),
        covered: received.covered,
        options: received.options.iter().take(MAX_OPTIONS).map(|option| label(option)).collect(),
        selector: clean(&received.selector, MAX_TEXT),
    }
}

fn button(received: wire::Button, layer: impl Fn(Option<usize>) -> Option<usize>) -> Button {
    Button {
        place: received.place,
        handle: Handle(clean(&received.handle, MAX_HANDLE)),
        frame: received.frame,
        form: received.form,
        kind: match received.kind.as_str() {
            "submit" => ButtonKind::Submit,
            "link" => ButtonKind::Link,
            "item" => ButtonKind::Item,
            "radio" => ButtonKind::Radio,
            _ => ButtonKind::Button,
        },
        label: clean(&received.label, MAX_LABEL),
        description: clean(&received.description, MAX_LABEL),
        marks: clean(&received.marks, MAX_TEXT),
        href: clean(&received.href, MAX_URL),
        disabled: received.disabled,
        layer: layer(received.layer),
        covered: received.covered,
        selector: clean(&received.selector, MAX_TEXT),
        xpath: clean(&received.xpath, MAX_TEXT),
    }
}

fn text(received: wire::Text, layer: impl Fn(Option<usize>) -> Option<usize>) -> Text {
    let kind = match received.kind.as_str() {
        "heading" => TextKind::Heading,
        "alert" => TextKind::Alert,
        "error" => TextKind::Error,
        _ => TextKind::Plain,
    };
    Text {
        place: received.place,
        frame: received.frame,
        kind,
        text: clean(&received.text, MAX_TEXT),
        layer: layer(received.layer),
    }
}
