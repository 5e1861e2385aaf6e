//! Input for the page in front of a session without a display, over the browser's debugging protocol.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::key_sym::KeySym;
use super::us_keys::{self, ALT, CONTROL, Definition, META, SHIFT};
use crate::browser::{Browser, Page};
use crate::cdp::CdpError;
use casement_agent_protocol::computer::{Button, Point};

/// The timeout of one event.
const EVENT: Duration = Duration::from_secs(10);
/// The maximum time between two clicks of a double click at one point.
const DOUBLE: Duration = Duration::from_millis(500);
/// The pixels that one step of the wheel scrolls: as many as on a display.
const WHEEL_STEP: i32 = 120;
/// The maximum length of a text typed into a dialog, in bytes.
const MAX_ANSWER: usize = 64 << 10;
/// The maximum number of unacknowledged events.
const WINDOW: usize = 64;

/// The mouse and keyboard of a browser without a display, with the pressed buttons and modifiers and the position of
/// the mouse.
#[derive(Debug)]
pub(super) struct PageInput {
    browser: Arc<Browser>,
    page: Option<Page>,
    at: Point,
    /// The bits of the pressed buttons.
    buttons: u8,
    /// The bits of the pressed modifiers.
    modifiers: u8,
    /// The text that was typed while a dialog was open.
    typed: String,
    last_click: Option<(Instant, Button, Point, u32)>,
}

impl PageInput {
    pub(super) fn new(browser: Arc<Browser>) -> Self {
        let at = Point { x: 0, y: 0 };
        Self { browser, page: None, at, buttons: 0, modifiers: 0, typed: String::new(), last_click: None }
    }

    pub(super) const fn mouse(&self) -> Point {
        self.at
    }

    pub(super) fn size(&self) -> (u32, u32) {
        let viewport = self.browser.viewport();
        (viewport.width, viewport.height)
    }

    /// Selects the page in front for the next events. While a button is pressed, the page that received the press stays
    /// selected.
    pub(super) async fn turn_to_front(&mut self) -> Result<(), CdpError> {
        // A page with a dialog answers no call, and no other page receives the keyboard before the dialog is closed.
        if self.page.as_ref().is_some_and(|page| self.buttons != 0 || self.browser.has_dialog(page)) {
            return Ok(());
        }
        let front = self.browser.front_target().await?;
        if let Some(crash) = self.browser.crash_of(&front) {
            return Err(crash);
        }
        if self.page.as_ref().is_some_and(|page| page.target == front) {
            return Ok(());
        }
        if let Some(page) = self.page.take() {
            self.browser.detach(&page).await;
        }
        let page = self.browser.attach(front, EVENT).await?;
        // A page with an open dialog answers no call; its dialog is tracked already.
        if !self.browser.has_dialog(&page) {
            self.browser.track_dialogs(&page).await?;
        }
        self.typed.clear();
        self.page = Some(page);
        Ok(())
    }

    async fn send(&mut self, method: &'static str, params: Value) -> Result<(), CdpError> {
        let page = self.page.as_ref().ok_or(CdpError::Closed)?;
        if self.browser.has_dialog(page) {
            return Ok(());
        }
        // An event that opens a dialog has taken effect, but is acknowledged only when the dialog is closed.
        let sent = tokio::select! {
            sent = self.browser.cdp.call(Some(&page.session), method, params, EVENT) => sent.map(drop),
            interrupted = self.interruption(&page.target) => interrupted,
        };
        self.forget_lost(&sent);
        sent
    }

    /// Waits until the page has a dialog or crashes, which is an error.
    async fn interruption(&self, target: &str) -> Result<(), CdpError> {
        self.browser.blocks(target).await;
        self.browser.crash_of(target).map_or(Ok(()), Err)
    }

    /// Applies a key to the open dialog.
    async fn answer(&mut self, definition: &Definition) -> Result<(), CdpError> {
        let page = self.page.as_ref().ok_or(CdpError::Closed)?;
        match (&*definition.key, definition.text.as_deref()) {
            ("Enter", _) => self.browser.answer_dialog(&page.target, true, &std::mem::take(&mut self.typed)).await,
            ("Escape", _) => {
                self.typed.clear();
                self.browser.answer_dialog(&page.target, false, "").await
            }
            ("Backspace", _) => {
                self.typed.pop();
                Ok(())
            }
            (_, Some(text)) if self.typed.len() < MAX_ANSWER => {
                self.typed.push_str(text);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns true if the selected page has an open dialog.
    fn at_dialog(&self) -> bool {
        self.page.as_ref().is_some_and(|page| self.browser.has_dialog(page))
    }

    /// Sends several events without waiting for each.
    async fn send_all(&mut self, method: &'static str, events: Vec<Value>) -> Result<(), CdpError> {
        let page = self.page.as_ref().ok_or(CdpError::Closed)?;
        let mut sent = Ok(());
        for window in events.chunks(WINDOW) {
            let mut answers = Vec::with_capacity(window.len());
            for event in window {
                answers.push(self.browser.cdp.begin(Some(&page.session), method, event).await?);
            }
            for answer in answers {
                let answered = tokio::select! {
                    answered = answer.within(EVENT) => answered.map(drop),
                    interrupted = self.interruption(&page.target) => interrupted,
                };
                sent = sent.and(answered);
            }
            if sent.is_err() {
                break;
            }
        }
        self.forget_lost(&sent);
        sent
    }

    /// Deselects the page after a refused event, because the page may be closed or has crashed. The next action selects the
    /// page in front.
    fn forget_lost(&mut self, sent: &Result<(), CdpError>) {
        if matches!(sent, Err(CdpError::Refused { .. } | CdpError::Blocked(_))) {
            self.page = None;
            self.buttons = 0;
        }
    }

    fn mouse_event(&self, kind: &str, button: Option<Button>, count: u32) -> Value {
        json!({
            "type": kind, "x": self.at.x, "y": self.at.y, "modifiers": self.modifiers, "buttons": self.buttons,
            "button": button.map_or("none", name), "clickCount": count, "pointerType": "mouse",
        })
    }

    pub(super) async fn move_to(&mut self, to: Point) -> Result<(), CdpError> {
        self.at = to;
        let held = [Button::Left, Button::Right, Button::Middle, Button::Back, Button::Forward];
        let held = held.into_iter().find(|button| self.buttons & bit(*button) != 0);
        let event = self.mouse_event("mouseMoved", held, 0);
        self.send("Input.dispatchMouseEvent", event).await
    }

    pub(super) async fn button(&mut self, button: Button, down: bool) -> Result<(), CdpError> {
        if down {
            self.buttons |= bit(button);
            let again = self
                .last_click
                .filter(|(when, which, place, _)| when.elapsed() < DOUBLE && *which == button && *place == self.at);
            let count = again.map_or(1, |(.., count)| count + 1);
            self.last_click = Some((Instant::now(), button, self.at, count));
        } else {
            self.buttons &= !bit(button);
        }
        let count = self.last_click.filter(|(_, which, ..)| *which == button).map_or(1, |(.., count)| count);
        let event = self.mouse_event(if down { "mousePressed" } else { "mouseReleased" }, Some(button), count);
        self.send("Input.dispatchMouseEvent", event).await
    }

    /// Clicks `times` times as one multiple click, regardless of how long the page takes for each.
    pub(super) async fn click(&mut self, button: Button, times: u32) -> Result<(), CdpError> {
        for earlier in 0..times {
            if let (Some((when, ..)), 1..) = (&mut self.last_click, earlier) {
                *when = Instant::now();
            }
            self.button(button, true).await?;
            self.button(button, false).await?;
        }
        Ok(())
    }

    pub(super) async fn wheel(&mut self, right: i32, down: i32) -> Result<(), CdpError> {
        let mut events = Vec::new();
        for (steps, axis) in [(down, "deltaY"), (right, "deltaX")] {
            for _ in 0..steps.unsigned_abs() {
                let mut event = self.mouse_event("mouseWheel", None, 0);
                event["deltaX"] = Value::from(0);
                event["deltaY"] = Value::from(0);
                event[axis] = Value::from(steps.signum() * WHEEL_STEP);
                events.push(event);
            }
        }
        self.send_all("Input.dispatchMouseEvent", events).await
    }

    pub(super) async fn key(&mut self, key: KeySym, down: bool) -> Result<(), CdpError> {
        // A symbol that no US keyboard has does nothing, as on a display.
        let Some(definition) = us_keys::definition(key, self.modifiers & SHIFT != 0) else { return Ok(()) };
        if definition.modifier != 0 {
            if down {
                self.modifiers |= definition.modifier;
            } else {
                self.modifiers &= !definition.modifier;
            }
        }
        if down && self.at_dialog() {
            return self.answer(&definition).await;
        }
        let event = key_event(&definition, self.modifiers, down);
        self.send("Input.dispatchKeyEvent", event).await
    }

    pub(super) async fn write(&mut self, keys: Vec<KeySym>) -> Result<(), CdpError> {
        let mut events = Vec::with_capacity(keys.len() * 2);
        for key in keys {
            let shifted = us_keys::is_shifted(key);
            let Some(definition) = us_keys::definition(key, shifted) else { continue };
            if self.at_dialog() {
                self.answer(&definition).await?;
                continue;
            }
            let modifiers = if shifted { SHIFT } else { 0 };
            events.push(key_event(&definition, modifiers, true));
            events.push(key_event(&definition, modifiers, false));
        }
        self.send_all("Input.dispatchKeyEvent", events).await
    }
}

fn key_event(definition: &Definition, modifiers: u8, down: bool) -> Value {
    let mut event = json!({
        "key": definition.key, "code": definition.code, "windowsVirtualKeyCode": definition.number,
        "location": definition.location, "isKeypad": definition.location == 3, "modifiers": modifiers,
    });
    // With one of these modifiers a key is a command and writes nothing.
    let text = definition.text.as_deref().filter(|_| modifiers & (ALT | CONTROL | META) == 0);
    match (down, text) {
        (true, Some(text)) => {
            event["type"] = Value::from("keyDown");
            event["text"] = Value::from(text);
            event["unmodifiedText"] = Value::from(text);
        }
        (true, None) => event["type"] = Value::from("rawKeyDown"),
        (false, _) => event["type"] = Value::from("keyUp"),
    }
    event
}

const fn bit(button: Button) -> u8 {
    match button {
        Button::Left => 1,
        Button::Right => 2,
        Button::Middle => 4,
        Button::Back => 8,
        Button::Forward => 16,
    }
}

const fn name(button: Button) -> &'static str {
    match button {
        Button::Left => "left",
        Button::Right => "right",
        Button::Middle => "middle",
        Button::Back => "back",
        Button::Forward => "forward",
    }
}
