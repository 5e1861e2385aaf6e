//! Requests for mouse and keyboard actions, and their checks.

use std::time::Duration;

use super::keys::{Chord, KeySym};
use super::model::{
    Action, Button, Click, ClickKind, Drag, DragMotion, MousePath, Move, Point, Press, Scroll, TypeText,
};
use crate::browser::Viewport;
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, required, within};

/// The maximum number of UTF-8 bytes of a clipboard text that is written.
pub const MAX_CLIPBOARD: usize = 1 << 20;
/// The maximum number of UTF-8 bytes of a text that is typed at once.
pub const MAX_TYPED: usize = 64 << 10;
/// The maximum number of keys that are held during an action.
pub const MAX_HELD: usize = 8;
/// The maximum number of chords of one request.
pub const MAX_CHORDS: usize = 32;
/// The maximum number of points of a path.
pub const MAX_PATH: usize = 1_000;
/// The maximum number of actions of one batch.
pub const MAX_ACTIONS: usize = 100;
/// The maximum duration of a single pause, in milliseconds.
pub const MAX_PAUSE_MS: u32 = 30_000;
/// The maximum duration of all pauses of one request together.
const MAX_TOTAL_PAUSE: Duration = Duration::from_secs(3_600);

/// The unchecked fields of `click_mouse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClickRequest {
    /// Required; pixels from the left edge.
    pub x: Option<i64>,
    /// Required; pixels from the upper edge.
    pub y: Option<i64>,
    /// `left`, `middle`, `right`, `back` or `forward`.
    pub button: Option<String>,
    /// `click`, `down` or `up`.
    pub click_type: Option<String>,
    /// The number of clicks, 1 to 10.
    pub num_clicks: Option<i64>,
    /// The keys that are held during the action.
    pub hold_keys: Option<Vec<String>>,
}

/// The unchecked fields of `move_mouse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveRequest {
    /// Required; pixels from the left edge.
    pub x: Option<i64>,
    /// Required; pixels from the upper edge.
    pub y: Option<i64>,
    /// True if the mouse moves along a curve.
    pub smooth: Option<bool>,
    /// The duration of the curve in milliseconds; only with `smooth`.
    pub duration_ms: Option<i64>,
    /// The keys that are held during the action.
    pub hold_keys: Option<Vec<String>>,
}

/// The unchecked fields of `drag_mouse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DragRequest {
    /// Required: at least two points of two numbers each.
    pub path: Option<Vec<Vec<i64>>>,
    /// `left`, `middle` or `right`.
    pub button: Option<String>,
    /// The pause in milliseconds before the first move.
    pub delay: Option<i64>,
    /// The pause in milliseconds after each step.
    pub step_delay_ms: Option<i64>,
    /// The number of steps between two points of the path.
    pub steps_per_segment: Option<i64>,
    /// True if the mouse moves along curves.
    pub smooth: Option<bool>,
    /// The duration of the curve in milliseconds; only with `smooth`.
    pub duration_ms: Option<i64>,
    /// The keys that are held during the action.
    pub hold_keys: Option<Vec<String>>,
}

/// The unchecked fields of `scroll`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrollRequest {
    /// Required; pixels from the left edge.
    pub x: Option<i64>,
    /// Required; pixels from the upper edge.
    pub y: Option<i64>,
    /// Steps of the wheel to the right.
    pub delta_x: Option<i64>,
    /// Steps of the wheel down.
    pub delta_y: Option<i64>,
    /// The keys that are held during the action.
    pub hold_keys: Option<Vec<String>>,
}

/// The unchecked fields of `press_key`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PressRequest {
    /// Required: the chords.
    pub keys: Option<Vec<String>>,
    /// The time in milliseconds for which the keys are held.
    pub duration: Option<i64>,
    /// The keys that are held during the action.
    pub hold_keys: Option<Vec<String>>,
}

/// The unchecked fields of `type_text`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeRequest {
    /// Required: the text.
    pub text: Option<String>,
    /// The pause in milliseconds after each key.
    pub delay: Option<i64>,
}

/// An unchecked item of a batch: its type, and the member of that name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchItem {
    /// Required: the type of the action.
    pub kind: Option<String>,
    /// All other members of the item.
    pub members: Vec<ActionRequest>,
}

/// An unchecked action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionRequest {
    /// `click_mouse`
    Click(ClickRequest),
    /// `move_mouse`
    Move(MoveRequest),
    /// `drag_mouse`
    Drag(DragRequest),
    /// `scroll`
    Scroll(ScrollRequest),
    /// `press_key`
    Press(PressRequest),
    /// `type_text`
    Type(TypeRequest),
    /// `set_cursor`
    Cursor {
        /// Required: true to hide the cursor, false to show it.
        hidden: Option<bool>,
    },
    /// `sleep`
    Sleep {
        /// Required: the pause in milliseconds.
        duration_ms: Option<i64>,
    },
}

/// The types of actions.
const KINDS: [&str; 8] =
    ["click_mouse", "move_mouse", "type_text", "press_key", "scroll", "drag_mouse", "set_cursor", "sleep"];

impl ActionRequest {
    const fn name(&self) -> &'static str {
        match self {
            Self::Click(_) => "click_mouse",
            Self::Move(_) => "move_mouse",
            Self::Drag(_) => "drag_mouse",
            Self::Scroll(_) => "scroll",
            Self::Press(_) => "press_key",
            Self::Type(_) => "type_text",
            Self::Cursor { .. } => "set_cursor",
            Self::Sleep { .. } => "sleep",
        }
    }

    /// Returns the checked action for a display of this size.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn parse(self, display: Viewport) -> Result<Action, InvalidInput> {
        let mut reading = FieldReader { fields: Fields::new(), prefix: String::new(), display };
        let action = reading.action(self);
        finish(reading.fields, action.into_iter().collect()).map(|mut actions| actions.swap_remove(0))
    }
}

/// Returns the checked actions of a batch, in order.
///
/// # Errors
/// Returns every field of every action that breaks a rule.
pub fn parse_batch(items: Option<Vec<BatchItem>>, display: Viewport) -> Result<Vec<Action>, InvalidInput> {
    let mut fields = Fields::new();
    let items = fields.take_required("actions", items, |items| match items.len() {
        0 => Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 action")),
        n if n > MAX_ACTIONS => {
            Err(InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_ACTIONS} actions")))
        }
        _ => Ok(items),
    });
    let mut reading = FieldReader { fields, prefix: String::new(), display };
    let mut actions = Vec::new();
    for (index, item) in items.into_iter().flatten().enumerate() {
        reading.prefix = format!("actions[{index}].");
        actions.extend(reading.item(item));
    }
    finish(reading.fields, actions)
}

fn finish(fields: Fields, actions: Vec<Action>) -> Result<Vec<Action>, InvalidInput> {
    fields.finish()?;
    let whole = actions.iter().map(Action::pauses).fold(Duration::ZERO, Duration::saturating_add);
    if whole > MAX_TOTAL_PAUSE {
        let message = format!("all pauses together must not be longer than {} seconds", MAX_TOTAL_PAUSE.as_secs());
        return Err(InvalidInput::of("body", InvalidValue::new(FieldCode::OutOfRange, message)));
    }
    Ok(actions)
}

/// Parses a text for the clipboard.
///
/// # Errors
/// Returns `required` or `too_long`.
pub fn parse_clipboard(text: Option<String>) -> Result<String, InvalidInput> {
    required("text", text, |text| no_longer(text, MAX_CLIPBOARD))
}

fn no_longer(text: String, max: usize) -> Result<String, InvalidValue> {
    if text.len() > max {
        return Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {max} bytes in UTF-8")));
    }
    Ok(text)
}

fn absent() -> InvalidValue {
    InvalidValue::new(FieldCode::Required, "is required")
}

/// Returns the value of a word of a closed list.
fn word<T: Copy>(given: &str, words: &[(&str, T)]) -> Result<T, InvalidValue> {
    words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value).ok_or_else(|| {
        let all = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        InvalidValue::new(FieldCode::NotAllowed, format!("must be one of {all}"))
    })
}

const BUTTONS: [(&str, Button); 5] = [
    ("left", Button::Left),
    ("middle", Button::Middle),
    ("right", Button::Right),
    ("back", Button::Back),
    ("forward", Button::Forward),
];
const CLICKS: [(&str, ClickKind); 3] = [("click", ClickKind::Click), ("down", ClickKind::Down), ("up", ClickKind::Up)];

/// A reader of the fields of an action. It collects the refusals and returns harmless defaults for refused fields.
struct FieldReader {
    fields: Fields,
    /// The prefix of the names of the fields.
    prefix: String,
    display: Viewport,
}

impl FieldReader {
    fn refuse(&mut self, name: &str, bad: InvalidValue) {
        self.fields.refuse(&format!("{}{name}", self.prefix), bad);
    }

    fn take<T: Default>(&mut self, name: &str, value: Result<T, InvalidValue>) -> T {
        value.unwrap_or_else(|bad| {
            self.refuse(name, bad);
            T::default()
        })
    }

    fn number(&mut self, name: &str, value: Option<i64>, default: u32, low: u32, high: u32) -> u32 {
        self.take(name, value.map_or(Ok(default), |value| within(value, low, high)))
    }

    fn pause(&mut self, name: &str, value: Option<i64>, default: u32, high: u32) -> Duration {
        Duration::from_millis(u64::from(self.number(name, value, default, 0, high)))
    }

    /// Parses a duration that applies only to curves; the outer `None` means a straight path.
    fn smooth(&mut self, smooth: Option<bool>, duration: Option<i64>) -> Option<Option<Duration>> {
        let smooth = smooth.unwrap_or(false);
        if duration.is_some() && !smooth {
            self.refuse("duration_ms", InvalidValue::new(FieldCode::NotAllowed, "needs smooth"));
        }
        let duration = duration.map(|ms| self.pause("duration_ms", Some(ms), 0, MAX_PAUSE_MS));
        smooth.then_some(duration)
    }

    fn point(&mut self, x: Option<i64>, y: Option<i64>) -> Point {
        let edge = |value: Option<i64>, whole| value.ok_or_else(absent).and_then(|v| within(v, 0, whole - 1));
        let (across, down) = (edge(x, self.display.width), edge(y, self.display.height));
        Point { x: self.take("x", across), y: self.take("y", down) }
    }

    fn hold(&mut self, names: Option<Vec<String>>) -> Vec<KeySym> {
        let names = names.unwrap_or_default();
        if names.len() > MAX_HELD {
            self.refuse(
                "hold_keys",
                InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_HELD} keys")),
            );
            return Vec::new();
        }
        self.chords("hold_keys", &names).iter().flat_map(|chord| chord.keys().iter().copied()).collect()
    }

    fn chords(&mut self, name: &str, texts: &[String]) -> Vec<Chord> {
        let mut chords = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            match Chord::parse(text) {
                Ok(chord) => chords.push(chord),
                Err(bad) => self.refuse(&format!("{name}[{index}]"), bad),
            }
        }
        chords
    }

    fn path(&mut self, path: Option<Vec<Vec<i64>>>) -> Vec<Point> {
        let Some(path) = path else {
            self.refuse("path", absent());
            return Vec::new();
        };
        if path.len() < 2 {
            self.refuse("path", InvalidValue::new(FieldCode::TooShort, "must have at least 2 points"));
        } else if path.len() > MAX_PATH {
            self.refuse("path", InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_PATH} points")));
            return Vec::new();
        }
        let mut points = Vec::with_capacity(path.len());
        for (index, point) in path.iter().enumerate() {
            let parsed = match point.as_slice() {
                [x, y] => within(*x, 0, self.display.width - 1)
                    .and_then(|x| within(*y, 0, self.display.height - 1).map(|y| Point { x, y })),
                _ => Err(InvalidValue::new(FieldCode::InvalidFormat, "must be two numbers")),
            };
            match parsed {
                Ok(point) => points.push(point),
                Err(bad) => {
                    // One refusal is enough, because such a path is usually wrong in many places.
                    self.refuse(&format!("path[{index}]"), bad);
                    return Vec::new();
                }
            }
        }
        points
    }

    fn click(&mut self, request: ClickRequest) -> Click {
        let at = self.point(request.x, request.y);
        let button = self.take("button", request.button.map_or(Ok(Button::Left), |text| word(&text, &BUTTONS)));
        let kind =
            self.take("click_type", request.click_type.map_or(Ok(ClickKind::Click), |text| word(&text, &CLICKS)));
        let times = self.number("num_clicks", request.num_clicks, 1, 1, 10);
        Click { at, button, kind, times, hold: self.hold(request.hold_keys) }
    }

    fn drag(&mut self, request: DragRequest) -> Drag {
        let path = self.path(request.path);
        let button = self.take("button", request.button.map_or(Ok(Button::Left), |text| word(&text, &BUTTONS[..3])));
        let delay = self.pause("delay", request.delay, 0, 10_000);
        let step_delay = self.pause("step_delay_ms", request.step_delay_ms, 50, 10_000);
        let per_segment = self.number("steps_per_segment", request.steps_per_segment, 10, 1, 1_000);
        let motion = match self.smooth(request.smooth, request.duration_ms) {
            Some(duration) => DragMotion::Smooth(duration),
            None => DragMotion::Steps { per_segment, delay: step_delay },
        };
        Drag { path, button, delay, motion, hold: self.hold(request.hold_keys) }
    }

    fn scroll(&mut self, request: ScrollRequest) -> Scroll {
        let at = self.point(request.x, request.y);
        let steps = |value: Option<i64>| {
            let steps = value.map_or(Ok(0), i32::try_from).ok().filter(|steps| (-1_000..=1_000).contains(steps));
            steps.ok_or_else(|| InvalidValue::new(FieldCode::OutOfRange, "must be from -1000 to 1000"))
        };
        let right = self.take("delta_x", steps(request.delta_x));
        let down = self.take("delta_y", steps(request.delta_y));
        Scroll { at, right, down, hold: self.hold(request.hold_keys) }
    }

    fn press(&mut self, request: PressRequest) -> Press {
        let chords = match request.keys {
            None => Err(absent()),
            Some(keys) if keys.is_empty() => Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 key")),
            Some(keys) if keys.len() > MAX_CHORDS => {
                Err(InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_CHORDS} keys")))
            }
            Some(keys) => Ok(self.chords("keys", &keys)),
        };
        let chords = self.take("keys", chords);
        let duration = self.pause("duration", request.duration, 0, MAX_PAUSE_MS);
        Press { chords, duration, hold: self.hold(request.hold_keys) }
    }

    fn typed(&mut self, request: TypeRequest) -> TypeText {
        let text = request.text.ok_or_else(absent).and_then(|text| no_longer(text, MAX_TYPED)).and_then(|text| {
            let no_key = |c: &char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
            match text.chars().find(no_key) {
                Some(c) => {
                    let point = u32::from(c);
                    Err(InvalidValue::new(
                        FieldCode::NotAllowed,
                        format!("U+{point:04X} is a control character, which no key types"),
                    ))
                }
                None => Ok(text),
            }
        });
        let text = self.take("text", text);
        TypeText { text, delay: self.pause("delay", request.delay, 0, 5_000) }
    }

    fn action(&mut self, request: ActionRequest) -> Option<Action> {
        Some(match request {
            ActionRequest::Click(request) => Action::Click(self.click(request)),
            ActionRequest::Move(request) => {
                let to = self.point(request.x, request.y);
                let way =
                    self.smooth(request.smooth, request.duration_ms).map_or(MousePath::Straight, MousePath::Smooth);
                Action::Move(Move { to, way, hold: self.hold(request.hold_keys) })
            }
            ActionRequest::Drag(request) => Action::Drag(self.drag(request)),
            ActionRequest::Scroll(request) => Action::Scroll(self.scroll(request)),
            ActionRequest::Press(request) => Action::Press(self.press(request)),
            ActionRequest::Type(request) => Action::Type(self.typed(request)),
            ActionRequest::Cursor { hidden } => {
                Action::Cursor { hidden: self.take("hidden", hidden.ok_or_else(absent)) }
            }
            ActionRequest::Sleep { duration_ms } => match duration_ms {
                Some(ms) => Action::Sleep(self.pause("duration_ms", Some(ms), 0, MAX_PAUSE_MS)),
                None => {
                    self.refuse("duration_ms", absent());
                    return None;
                }
            },
        })
    }

    /// Parses an item of a batch, which has exactly the member that its type names.
    fn item(&mut self, item: BatchItem) -> Option<Action> {
        let Some(kind) = item.kind else {
            self.refuse("type", absent());
            return None;
        };
        if !KINDS.contains(&kind.as_str()) {
            self.refuse(
                "type",
                InvalidValue::new(FieldCode::NotAllowed, format!("must be one of {}", KINDS.join(", "))),
            );
            return None;
        }
        let (named, others): (Vec<_>, Vec<_>) = item.members.into_iter().partition(|request| request.name() == kind);
        for other in &others {
            self.refuse(
                other.name(),
                InvalidValue::new(FieldCode::NotAllowed, format!("does not belong to type {kind}")),
            );
        }
        let Some(request) = named.into_iter().next() else {
            self.refuse(&kind, absent());
            return None;
        };
        let prefix = self.prefix.clone();
        self.prefix = format!("{prefix}{kind}.");
        let action = self.action(request);
        self.prefix = prefix;
        action
    }
}
