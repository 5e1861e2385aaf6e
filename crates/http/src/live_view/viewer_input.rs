//! A viewer's mouse and keyboard on a display, translated into computer control.

use std::time::Duration;

use casement_domain::{
    computer::{Action, Button, Click, ClickKind, Computers, KeySym, MousePath, Move, Point, Scroll, TypeText},
    session::Session,
};
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::{
    held_keys::{HeldKeys, press},
    input::{self, Mouse, MouseKind, PageMessage, Wheel},
};

/// The maximum number of queued inputs. Further inputs of a viewer whose session does not respond are dropped.
const MAX_QUEUED: usize = 256;
/// The maximum number of actions in one call.
const MAX_BATCH: usize = 50;
/// The number of pixels that one step of the wheel scrolls.
const WHEEL_STEP: f64 = 100.0;
/// The maximum number of steps of one turn of the wheel.
const MAX_STEPS: f64 = 50.0;

/// A queued input.
#[derive(Debug)]
enum QueuedInput {
    Action(Action),
    /// Text that is written to the clipboard and then pasted.
    Paste(String),
}

/// The input of one viewer to a session. When it is dropped, buttons and keys that are still pressed are released.
pub(super) struct ViewerInput {
    queue: mpsc::Sender<QueuedInput>,
    held: HeldKeys,
    /// The fractions of steps that the wheel has turned so far, horizontal and vertical.
    wheel_remainder: (f64, f64),
}

impl ViewerInput {
    /// Starts the task that performs inputs. Must be called on a worker of the server.
    pub(super) fn new(computers: Computers, session: Session) -> Self {
        let (queue, inputs) = mpsc::channel(MAX_QUEUED);
        actix_web::rt::spawn(perform_inputs(computers, session, inputs).in_current_span());
        Self { queue, held: HeldKeys::default(), wheel_remainder: (0.0, 0.0) }
    }

    /// Performs the input of a page message on a display of this size.
    pub(super) fn handle(&mut self, message: &PageMessage, display: (u32, u32)) {
        match message {
            PageMessage::Mouse(mouse) => self.mouse(mouse, display),
            PageMessage::Wheel(wheel) => self.wheel(wheel, display),
            PageMessage::Key(key) if key.is_plain() => {
                let actions = self.held.key(key);
                self.enqueue_actions(actions);
            }
            PageMessage::Text { s, paste } if s.len() <= input::MAX_TEXT_BYTES => {
                // Held keys would change the typed text.
                let actions = self.held.release_keys();
                self.enqueue_actions(actions);
                // Long texts are pasted, because typing them takes too long.
                let by_key = !paste && s.len() <= input::MAX_TYPED_BYTES;
                self.enqueue(if by_key { typed(s) } else { QueuedInput::Paste(s.clone()) });
            }
            _ => {}
        }
    }

    fn enqueue(&self, input: QueuedInput) {
        if self.queue.try_send(input).is_err() {
            tracing::debug!("a viewer's input was dropped, because the session does not respond");
        }
    }

    fn enqueue_actions(&self, actions: Vec<Action>) {
        actions.into_iter().for_each(|action| self.enqueue(QueuedInput::Action(action)));
    }

    fn mouse(&mut self, mouse: &Mouse, display: (u32, u32)) {
        // Modifiers that were pressed outside of the page are synchronized by button events, not by moves.
        let hold = match mouse.k {
            MouseKind::Move => Vec::new(),
            MouseKind::Down | MouseKind::Up => self.modifiers(mouse.m),
        };
        let at = pixel(mouse.x, mouse.y, display);
        let click = |kind| {
            let button = match mouse.b {
                input::Button::None => return None,
                input::Button::Left => Button::Left,
                input::Button::Middle => Button::Middle,
                input::Button::Right => Button::Right,
                input::Button::Back => Button::Back,
                input::Button::Forward => Button::Forward,
            };
            Some(Action::Click(Click { at, button, kind, times: 1, hold: hold.clone() }))
        };
        let action = match mouse.k {
            MouseKind::Move => Some(Action::Move(Move { to: at, way: MousePath::Straight, hold: Vec::new() })),
            MouseKind::Down => click(ClickKind::Down),
            MouseKind::Up => click(ClickKind::Up),
        };
        self.enqueue_actions(action.into_iter().collect());
    }

    /// Releases modifiers that are no longer held, and returns those that must be held for this action only.
    fn modifiers(&mut self, bits: u8) -> Vec<KeySym> {
        let (actions, missing) = self.held.sync_modifiers(bits);
        self.enqueue_actions(actions);
        missing
    }

    fn wheel(&mut self, wheel: &Wheel, display: (u32, u32)) {
        let steps = |turned: f64, wheel_remainder: &mut f64| {
            let turned = *wheel_remainder + turned / WHEEL_STEP;
            let whole = turned.trunc().clamp(-MAX_STEPS, MAX_STEPS);
            *wheel_remainder = turned.fract();
            // Clamped to fifty above.
            whole as i32
        };
        let (right, down) =
            (steps(wheel.dx, &mut self.wheel_remainder.0), steps(wheel.dy, &mut self.wheel_remainder.1));
        if (right, down) != (0, 0) {
            let (at, hold) = (pixel(wheel.x, wheel.y, display), self.modifiers(wheel.m));
            self.enqueue(QueuedInput::Action(Action::Scroll(Scroll { at, right, down, hold })));
        }
    }
}

/// Returns a pixel of the display; `x` and `y` run from 0 to 1 over the display.
fn pixel(x: f64, y: f64, display: (u32, u32)) -> Point {
    let along = |part: f64, whole: u32| ((part.clamp(0.0, 1.0) * f64::from(whole)) as u32).min(whole.saturating_sub(1));
    Point { x: along(x, display.0), y: along(y, display.1) }
}

fn typed(text: &str) -> QueuedInput {
    let text = text.chars().filter(|character| !character.is_control() || matches!(character, '\n' | '\t')).collect();
    QueuedInput::Action(Action::Type(TypeText { text, delay: Duration::ZERO }))
}

async fn perform_inputs(computers: Computers, session: Session, mut inputs: mpsc::Receiver<QueuedInput>) {
    let mut pressed = PressedKeys::default();
    let mut next_input = None;
    loop {
        let next = match next_input.take() {
            Some(next) => Some(next),
            None => inputs.recv().await,
        };
        let result = match next {
            Some(QueuedInput::Paste(text)) => paste(&computers, &session, text).await,
            Some(QueuedInput::Action(action)) => {
                let mut actions = vec![action];
                next_input = fill_batch(&mut actions, &mut inputs);
                actions.iter().for_each(|action| pressed.note(action));
                computers.all(&session, actions).await.map_err(|failure| failure.error.to_string())
            }
            None => break,
        };
        if let Err(error) = result {
            tracing::debug!(%error, "a viewer's input failed");
        }
    }
    let releases = pressed.release();
    if !releases.is_empty() {
        let _ = computers.all(&session, releases).await;
    }
}

/// Adds queued actions to `actions` and merges consecutive moves. Returns the first queued input that is no action.
fn fill_batch(actions: &mut Vec<Action>, inputs: &mut mpsc::Receiver<QueuedInput>) -> Option<QueuedInput> {
    while actions.len() < MAX_BATCH {
        match inputs.try_recv() {
            Ok(QueuedInput::Action(action)) => {
                if let (Action::Move(_), Some(last @ Action::Move(_))) = (&action, actions.last_mut()) {
                    *last = action;
                } else {
                    actions.push(action);
                }
            }
            Ok(paste) => return Some(paste),
            Err(_) => break,
        }
    }
    None
}

/// The pressed buttons and keys.
#[derive(Default)]
struct PressedKeys {
    buttons: Vec<Click>,
    keys: Vec<KeySym>,
}

impl PressedKeys {
    fn note(&mut self, action: &Action) {
        match action {
            Action::Click(click) => {
                self.buttons.retain(|held| held.button != click.button);
                if click.kind == ClickKind::Down {
                    self.buttons.push(click.clone());
                }
            }
            Action::Key { key, down } => {
                self.keys.retain(|held| held != key);
                if *down {
                    self.keys.push(*key);
                }
            }
            _ => {}
        }
    }

    /// Returns the actions that release all buttons and keys.
    fn release(self) -> Vec<Action> {
        let button = |click: Click| Action::Click(Click { kind: ClickKind::Up, hold: Vec::new(), ..click });
        let key = |key: KeySym| Action::Key { key, down: false };
        self.keys.into_iter().rev().map(key).chain(self.buttons.into_iter().map(button)).collect()
    }
}

async fn paste(computers: &Computers, session: &Session, text: String) -> Result<(), String> {
    computers.write_clipboard(session, Some(text)).await.map_err(|error| error.to_string())?;
    computers
        .all(session, press("v", KeySym::named("Control_L").into_iter().collect()).into_iter().collect())
        .await
        .map_err(|failure| failure.error.to_string())
}
