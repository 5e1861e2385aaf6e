//! One window of the display: its place and its state.

use x11rb::protocol::xproto::Window;

use super::hints::{Atoms, Kind, Visibility, Wishes};
use super::place::Place;

/// The maximum number of states of a window that the window manager keeps without knowing them.
const MAX_UNKNOWN: usize = 16;

/// The actions of a `_NET_WM_STATE` message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Remove,
    Add,
    Toggle,
}

impl Change {
    pub(super) fn of(word: u32) -> Option<Self> {
        [Self::Remove, Self::Add, Self::Toggle].get(usize::try_from(word).ok()?).copied()
    }

    fn apply(self, to: &mut bool) {
        *to = match self {
            Self::Remove => false,
            Self::Add => true,
            Self::Toggle => !*to,
        };
    }
}

/// A window that the window manager has shown.
#[derive(Debug)]
pub(super) struct Managed {
    pub(super) id: Window,
    pub(super) kind: Kind,
    /// The window that this one stays in front of.
    pub(super) parent: Option<Window>,
    /// The place in the normal state.
    pub(super) place: Place,
    pub(super) minimized: bool,
    pub(super) take_focus: bool,
    maximized_across: bool,
    maximized_down: bool,
    fullscreen: bool,
    modal: bool,
    unknown: Vec<u32>,
    /// The number of reports to come that the window manager has hidden this window itself.
    pub(super) hidings: u32,
}

impl Managed {
    pub(super) fn new(id: Window, wishes: &Wishes, place: Place, atoms: &Atoms) -> Self {
        let mut window = Self {
            id,
            kind: wishes.kind,
            parent: None,
            place,
            minimized: false,
            take_focus: wishes.take_focus,
            maximized_across: false,
            maximized_down: false,
            fullscreen: false,
            modal: false,
            unknown: Vec::new(),
            hidings: 0,
        };
        for state in &wishes.states {
            window.change(Change::Add, *state, atoms);
        }
        window
    }

    /// Returns true if the window wants the keyboard instead of its parent.
    pub(super) fn is_dialog(&self) -> bool {
        matches!(self.kind, Kind::Dialog | Kind::Files) || self.modal
    }

    /// Adds or removes a state of `_NET_WM_STATE`. `_NET_WM_STATE_HIDDEN` is the window manager's own.
    pub(super) fn change(&mut self, change: Change, state: u32, atoms: &Atoms) {
        match state {
            0 => {}
            state if state == atoms._NET_WM_STATE_MAXIMIZED_HORZ => change.apply(&mut self.maximized_across),
            state if state == atoms._NET_WM_STATE_MAXIMIZED_VERT => change.apply(&mut self.maximized_down),
            state if state == atoms._NET_WM_STATE_FULLSCREEN => change.apply(&mut self.fullscreen),
            state if state == atoms._NET_WM_STATE_MODAL => change.apply(&mut self.modal),
            state if state == atoms._NET_WM_STATE_HIDDEN => {}
            state => {
                let mut is_set = self.unknown.contains(&state);
                change.apply(&mut is_set);
                self.unknown.retain(|known| *known != state);
                if is_set && self.unknown.len() < MAX_UNKNOWN {
                    self.unknown.push(state);
                }
            }
        }
    }

    /// Returns the states for `_NET_WM_STATE`.
    pub(super) fn states(&self, atoms: &Atoms) -> Vec<u32> {
        let known = [
            (self.maximized_across, atoms._NET_WM_STATE_MAXIMIZED_HORZ),
            (self.maximized_down, atoms._NET_WM_STATE_MAXIMIZED_VERT),
            (self.fullscreen, atoms._NET_WM_STATE_FULLSCREEN),
            (self.modal, atoms._NET_WM_STATE_MODAL),
            (self.minimized, atoms._NET_WM_STATE_HIDDEN),
        ];
        let set = known.into_iter().filter(|(is_set, _)| *is_set).map(|(_, state)| state);
        set.chain(self.unknown.iter().copied()).collect()
    }

    pub(super) fn visibility(&self) -> Visibility {
        if self.minimized { Visibility::Minimized } else { Visibility::Normal }
    }

    /// Returns where the window is in its present state.
    pub(super) fn shown_at(&self, display: Place) -> Place {
        let mut place = self.place;
        if self.fullscreen || self.maximized_across {
            (place.x, place.width) = (display.x, display.width);
        }
        if self.fullscreen || self.maximized_down {
            (place.y, place.height) = (display.y, display.height);
        }
        place
    }

    /// Returns true if the window is in its normal state, in which it chooses its place.
    pub(super) fn is_normal(&self) -> bool {
        !(self.fullscreen || self.maximized_across || self.maximized_down)
    }
}
