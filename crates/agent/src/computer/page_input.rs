//! Input for the page in front of a session without a display, over the browser's debugging protocol.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::browser_keys;
use super::composer::Composer;
use super::input_error::InputError;
use super::key_sym::{CAPS_LOCK, KeySym};
use super::look::{DrawnPicker, Seen};
use super::us_keys::{self, ALT, CONTROL, Definition, META, SHIFT};
use crate::browser::focused::Focused;
use crate::browser::{Browser, Page};
use crate::cdp::CdpError;
use casement_agent_protocol::computer::{Button, Point};

pub(super) const KEY_EVENT: &str = "Input.dispatchKeyEvent";
/// The timeout of one event.
pub(super) const EVENT: Duration = Duration::from_secs(10);
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
    pub(super) browser: Arc<Browser>,
    pub(super) page: Option<Page>,
    /// True if the page closed during the action, so that its further events have nobody to receive them.
    has_closed: bool,
    pub(super) at: Point,
    /// What the mouse met in the page when the action began.
    pub(super) seen: Seen,
    /// True if the open list took the press of the button whose release follows.
    list_took_press: bool,
    /// The bits of the pressed buttons.
    buttons: u8,
    /// The bits of the pressed modifiers.
    pub(super) modifiers: u8,
    /// True if Caps Lock is on.
    caps: bool,
    pub(super) composer: Composer,
    /// The text that was typed while a dialog was open.
    pub(super) typed: String,
    last_click: Option<(Instant, Button, Point, u32)>,
}

impl PageInput {
    pub(super) fn new(browser: Arc<Browser>) -> Self {
        Self {
            browser,
            page: None,
            has_closed: false,
            at: Point { x: 0, y: 0 },
            seen: Seen::default(),
            list_took_press: false,
            buttons: 0,
            modifiers: 0,
            caps: false,
            composer: Composer::default(),
            typed: String::new(),
            last_click: None,
        }
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
        self.has_closed = false;
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
        self.composer.cancel();
        self.page = Some(page);
        Ok(())
    }

    pub(super) async fn send(&mut self, method: &'static str, params: Value) -> Result<(), CdpError> {
        if self.has_closed {
            return Ok(());
        }
        let page = self.page.as_ref().ok_or(CdpError::Closed)?;
        if self.browser.has_dialog(page) {
            return Ok(());
        }
        // An event that opens a dialog or closes the page has taken effect, but is not acknowledged.
        let sent = tokio::select! {
            sent = self.browser.cdp.call(Some(&page.session), method, params, EVENT) => sent.map(|_| Cut::None),
            interrupted = self.interruption(page) => interrupted,
        };
        let sent = closed_or(sent);
        self.forget_lost(&sent);
        sent.map(drop)
    }

    /// Waits until the page has a dialog, closes, or crashes, which is an error.
    pub(super) async fn interruption(&self, page: &Page) -> Result<Cut, CdpError> {
        tokio::select! {
            _ = self.browser.blocks(&page.target) => self.browser.crash_of(&page.target).map_or(Ok(Cut::Dialog), Err),
            () = self.browser.closes(page) => Ok(Cut::Closed),
        }
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
    pub(super) fn at_dialog(&self) -> bool {
        self.page.as_ref().is_some_and(|page| self.browser.has_dialog(page))
    }

    /// Sends several events without waiting for each.
    async fn send_all(&mut self, method: &'static str, events: Vec<Value>) -> Result<(), CdpError> {
        if self.has_closed {
            return Ok(());
        }
        let page = self.page.as_ref().ok_or(CdpError::Closed)?;
        let mut sent = Ok(Cut::None);
        for window in events.chunks(WINDOW) {
            let mut answers = Vec::with_capacity(window.len());
            for event in window {
                answers.push(self.browser.cdp.begin(Some(&page.session), method, event).await?);
            }
            for answer in answers {
                let answered = tokio::select! {
                    answered = answer.within(EVENT) => answered.map(|_| Cut::None),
                    interrupted = self.interruption(page) => interrupted,
                };
                sent = sent.and(closed_or(answered));
            }
            if !matches!(sent, Ok(Cut::None | Cut::Dialog)) {
                break;
            }
        }
        self.forget_lost(&sent);
        sent.map(drop)
    }

    /// Deselects the page after a refused event, because the page may be closed or has crashed. The next action selects the
    /// page in front.
    fn forget_lost(&mut self, sent: &Result<Cut, CdpError>) {
        self.has_closed |= matches!(sent, Ok(Cut::Closed));
        if matches!(sent, Ok(Cut::Closed) | Err(CdpError::Refused { .. } | CdpError::Blocked(_))) {
            self.page = None;
            self.buttons = 0;
        }
    }

    /// Returns the position of the mouse in pixels of the page.
    fn point(&self) -> (f64, f64) {
        (f64::from(self.at.x) / self.seen.scale, f64::from(self.at.y) / self.seen.scale)
    }

    /// Returns the open list or picker at the mouse.
    fn picker(&self) -> Option<&DrawnPicker> {
        self.seen.picker.as_ref().filter(|picker| picker.is_at(self.at.x, self.at.y))
    }

    fn mouse_event(&self, kind: &str, button: Option<Button>, count: u32) -> Value {
        let (x, y) = self.point();
        json!({
            "type": kind, "x": x, "y": y, "modifiers": self.modifiers, "buttons": self.buttons,
            "button": button.map_or("none", name), "clickCount": count, "pointerType": "mouse",
        })
    }

    pub(super) async fn move_to(&mut self, to: Point) -> Result<(), CdpError> {
        self.at = to;
        // The page below an open list does not see the mouse.
        if self.buttons == 0 && self.picker().is_some() {
            return Ok(());
        }
        let held = [Button::Left, Button::Right, Button::Middle, Button::Back, Button::Forward];
        let held = held.into_iter().find(|button| self.buttons & bit(*button) != 0);
        let event = self.mouse_event("mouseMoved", held, 0);
        self.send("Input.dispatchMouseEvent", event).await
    }

    pub(super) async fn button(&mut self, button: Button, down: bool) -> Result<(), InputError> {
        if self.has_closed {
            self.turn_to_front().await?;
        }
        if !down && std::mem::take(&mut self.list_took_press) {
            return Ok(());
        }
        if down && self.press_at_picker(button).await? {
            self.list_took_press = true;
            return Ok(());
        }
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
        Ok(self.send("Input.dispatchMouseEvent", event).await?)
    }

    /// Applies a pressed button to the open list at the mouse. Returns false if the page gets the press, which closes any
    /// list.
    async fn press_at_picker(&mut self, button: Button) -> Result<bool, InputError> {
        let Some(picker) = self.picker().cloned() else {
            self.seen.picker = None;
            return Ok(false);
        };
        if picker.open.has_choice() && button == Button::Left && self.choose_in_list(&picker.open).await? {
            self.seen.picker = None;
            return Ok(true);
        }
        Err(picker.refusal())
    }

    /// Clicks `times` times as one multiple click, regardless of how long the page takes for each.
    pub(super) async fn click(&mut self, button: Button, times: u32) -> Result<(), InputError> {
        for earlier in 0..times {
            if let (Some((when, ..)), 1..) = (&mut self.last_click, earlier) {
                *when = Instant::now();
            }
            self.button(button, true).await?;
            self.button(button, false).await?;
        }
        Ok(())
    }

    pub(super) async fn wheel(&mut self, right: i32, down: i32) -> Result<(), InputError> {
        if let Some(picker) = self.picker() {
            return Err(picker.refusal());
        }
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
        Ok(self.send_all("Input.dispatchMouseEvent", events).await?)
    }

    pub(super) async fn key(&mut self, key: KeySym, down: bool) -> Result<(), InputError> {
        if self.has_closed && down {
            self.turn_to_front().await?;
        }
        self.caps ^= down && key == CAPS_LOCK;
        let shift = self.modifiers & SHIFT != 0;
        let letter = us_keys::with_caps(key, shift).filter(|_| self.caps);
        let (key, shift) = letter.map_or((key, shift), |letter| (letter, false));
        let definition = us_keys::definition(key, shift);
        if self.compose(key, definition.as_ref(), down).await? {
            return Ok(());
        }
        // A symbol that no US keyboard has does nothing, as on a display.
        let Some(definition) = definition else { return Ok(()) };
        if definition.modifier != 0 {
            if down {
                self.modifiers |= definition.modifier;
            } else {
                self.modifiers &= !definition.modifier;
            }
        }
        if down && self.at_dialog() {
            return Ok(self.answer(&definition).await?);
        }
        let mut event = key_event(&definition, self.modifiers, down);
        if down && let Some(what) = browser_keys::not_drawn(self.modifiers, &definition.code) {
            return self.key_for_page_only(event, what).await;
        }
        if !down {
            return Ok(self.send(KEY_EVENT, event).await?);
        }
        // With the native code, the browser acts on a key that the page does not prevent, such as F5.
        event["nativeVirtualKeyCode"] = Value::from(definition.number);
        if definition.key != "Enter" || event["type"] != "keyDown" {
            return Ok(self.send(KEY_EVENT, event).await?);
        }
        // The suggestions of a field take the key only without its character, as a keyboard sends it.
        let mut character = event.clone();
        event["type"] = Value::from("rawKeyDown");
        character["type"] = Value::from("char");
        self.send(KEY_EVENT, event).await?;
        Ok(self.send(KEY_EVENT, character).await?)
    }

    /// Sends a pressed key that the browser does not see; an error if the page does not handle it. `what` is where the key
    /// would lead.
    async fn key_for_page_only(&mut self, event: Value, what: &str) -> Result<(), InputError> {
        let Some(page) = self.page.clone() else { return Ok(self.send(KEY_EVENT, event).await?) };
        let browser = Arc::clone(&self.browser);
        let mut focused = Focused::find(&browser, &page).await?;
        let sent = match focused.listen(&browser).await {
            Ok(()) => self.send(KEY_EVENT, event).await,
            Err(error) => Err(error),
        };
        let is_handled = sent.is_ok() && (self.has_closed || self.at_dialog() || focused.has_prevented(&browser).await);
        focused.leave(&browser).await;
        sent?;
        if is_handled {
            return Ok(());
        }
        Err(InputError::NeedsDisplay(format!(
            "the key leads to {what}, which a session without a display does not show, and the page does not handle it"
        )))
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
        self.send_all(KEY_EVENT, events).await
    }
}

/// What ended the wait for an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    None,
    Dialog,
    Closed,
}

/// Returns what became of an event. A page may close between two events, such as those of one key.
fn closed_or(sent: Result<Cut, CdpError>) -> Result<Cut, CdpError> {
    match sent {
        Err(error) if error.is_of_closed_page() => Ok(Cut::Closed),
        sent => sent,
    }
}

pub(super) fn key_event(definition: &Definition, modifiers: u8, down: bool) -> Value {
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
