//! Request bodies of mouse and keyboard actions.

use casement_domain::computer::{
    ActionRequest, BatchItem, ClickRequest, DragRequest, MoveRequest, PressRequest, ScrollRequest, TypeRequest,
};
use serde::Deserialize;

use crate::schema::ToSchema;

/// A click. `x` and `y` are required, in pixels of the display from its upper left corner.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ClickMouse {
    #[schema(required, nullable = false)]
    x: Option<i64>,
    #[schema(required, nullable = false)]
    y: Option<i64>,
    /// `left`, `middle`, `right`, `back` or `forward`. Default: `left`.
    button: Option<String>,
    /// `click`, `down` or `up`. A pressed button stays down until `up`. Default: `click`.
    click_type: Option<String>,
    /// The number of clicks, 1 to 10. Default: 1.
    num_clicks: Option<i64>,
    /// Keys that are held during the action, at most 8.
    hold_keys: Option<Vec<String>>,
}

/// A move. `x` and `y` are required.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct MoveMouse {
    #[schema(required, nullable = false)]
    x: Option<i64>,
    #[schema(required, nullable = false)]
    y: Option<i64>,
    /// Whether the mouse moves along a curve, as a hand would move it. Default: false.
    smooth: Option<bool>,
    /// The duration of the move in milliseconds, 0 to 30000; only with `smooth`. Default: derived from the distance.
    duration_ms: Option<i64>,
    /// Keys that are held during the action, at most 8.
    hold_keys: Option<Vec<String>>,
}

/// A drag.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct DragMouse {
    /// 2 to 1000 points of `x` and `y`. Required.
    #[schema(required, nullable = false)]
    path: Option<Vec<Vec<i64>>>,
    /// `left`, `middle` or `right`. Default: `left`.
    button: Option<String>,
    /// Milliseconds between the press and the first move, 0 to 10000. Default: 0.
    delay: Option<i64>,
    /// Milliseconds after each step, 0 to 10000. Default: 50.
    step_delay_ms: Option<i64>,
    /// The number of steps between two points, 1 to 1000. Default: 10.
    steps_per_segment: Option<i64>,
    /// Whether the mouse moves along curves; `step_delay_ms` and `steps_per_segment` are ignored then. Default: false.
    smooth: Option<bool>,
    /// The duration of the whole drag in milliseconds, 0 to 30000; only with `smooth`. Default: derived from the
    /// distance.
    duration_ms: Option<i64>,
    /// Keys that are held during the action, at most 8.
    hold_keys: Option<Vec<String>>,
}

/// A scroll of the wheel. `x` and `y` are required.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Scroll {
    #[schema(required, nullable = false)]
    x: Option<i64>,
    #[schema(required, nullable = false)]
    y: Option<i64>,
    /// Steps of the wheel to the right, -1000 to 1000. Default: 0.
    delta_x: Option<i64>,
    /// Steps of the wheel down, -1000 to 1000. Default: 0.
    delta_y: Option<i64>,
    /// Keys that are held during the action, at most 8.
    hold_keys: Option<Vec<String>>,
}

/// Keys to press.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct PressKey {
    /// 1 to 32 X11 key symbols or chords of them: `Return`, `Ctrl+t`. Required.
    #[schema(required, nullable = false)]
    keys: Option<Vec<String>>,
    /// The time in milliseconds for which all keys are held together, 0 to 30000; 0: each key is pressed briefly.
    /// Default: 0.
    duration: Option<i64>,
    /// Keys that are held during the action, at most 8.
    hold_keys: Option<Vec<String>>,
}

/// Text to type.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct TypeText {
    /// The text, at most 64 KiB in UTF-8. A line end is typed as the key Return, a tab as the key Tab. Required.
    #[schema(required, nullable = false)]
    text: Option<String>,
    /// Milliseconds after each key, 0 to 5000. Default: 0.
    delay: Option<i64>,
}

/// The visibility of the mouse cursor.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SetCursor {
    /// Whether the cursor is hidden. Required.
    #[schema(required, nullable = false)]
    hidden: Option<bool>,
}

/// A pause.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct Sleep {
    /// The duration in milliseconds, 0 to 30000. Required.
    #[schema(required, nullable = false)]
    duration_ms: Option<i64>,
}

/// Actions to perform in order.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Batch {
    /// 1 to 100 actions. Required.
    #[schema(required, nullable = false)]
    actions: Option<Vec<BatchAction>>,
}

/// One action: its type, and its parameters in the field of the same name.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct BatchAction {
    /// `click_mouse`, `move_mouse`, `type_text`, `press_key`, `scroll`, `drag_mouse`, `set_cursor` or `sleep`.
    /// Required.
    #[schema(required, nullable = false)]
    r#type: Option<String>,
    click_mouse: Option<ClickMouse>,
    move_mouse: Option<MoveMouse>,
    type_text: Option<TypeText>,
    press_key: Option<PressKey>,
    scroll: Option<Scroll>,
    drag_mouse: Option<DragMouse>,
    set_cursor: Option<SetCursor>,
    sleep: Option<Sleep>,
}

/// Implements the conversion of each body to the domain's request with the same fields.
macro_rules! actions {
    ($($body:ident => $variant:ident $(($request:ident))? { $($field:ident),* };)*) => {$(
        impl From<$body> for ActionRequest {
            fn from($body { $($field),* }: $body) -> Self {
                actions!(@ $variant $($request)? { $($field),* })
            }
        }
    )*};
    (@ $variant:ident $request:ident $fields:tt) => { Self::$variant($request $fields) };
    (@ $variant:ident $fields:tt) => { Self::$variant $fields };
}

actions! {
    ClickMouse => Click(ClickRequest) { x, y, button, click_type, num_clicks, hold_keys };
    MoveMouse => Move(MoveRequest) { x, y, smooth, duration_ms, hold_keys };
    DragMouse => Drag(DragRequest) {
        path, button, delay, step_delay_ms, steps_per_segment, smooth, duration_ms, hold_keys
    };
    Scroll => Scroll(ScrollRequest) { x, y, delta_x, delta_y, hold_keys };
    PressKey => Press(PressRequest) { keys, duration, hold_keys };
    TypeText => Type(TypeRequest) { text, delay };
    SetCursor => Cursor { hidden };
    Sleep => Sleep { duration_ms };
}

impl From<BatchAction> for BatchItem {
    fn from(action: BatchAction) -> Self {
        let members = [
            action.click_mouse.map(ActionRequest::from),
            action.move_mouse.map(ActionRequest::from),
            action.type_text.map(ActionRequest::from),
            action.press_key.map(ActionRequest::from),
            action.scroll.map(ActionRequest::from),
            action.drag_mouse.map(ActionRequest::from),
            action.set_cursor.map(ActionRequest::from),
            action.sleep.map(ActionRequest::from),
        ];
        Self { kind: action.r#type, members: members.into_iter().flatten().collect() }
    }
}

impl Batch {
    pub(super) fn items(self) -> Option<Vec<BatchItem>> {
        self.actions.map(|actions| actions.into_iter().map(BatchItem::from).collect())
    }
}
