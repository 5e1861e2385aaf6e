//! What windows and the window manager tell each other in properties and messages: the conventions of X11 (ICCCM) and
//! of desktops (EWMH).

use x11rb::atom_manager;
use x11rb::connection::Connection as _;
use x11rb::errors::ReplyOrIdError;
use x11rb::protocol::xproto::{
    AtomEnum, ClientMessageEvent, ConnectionExt as _, CreateWindowAux, EventMask, PropMode, Window, WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

/// The result of requests to the X server.
pub(super) type Result<T> = std::result::Result<T, ReplyOrIdError>;

/// The maximum number of words that are read of a property of a window. The window's program chooses its length.
const MAX_WORDS: u32 = 64;
/// The role that Chromium gives to its windows with tabs.
const TABBED: &[u8] = b"browser";
/// The role that Chromium gives to its windows without tabs.
const POP_UP: &[u8] = b"pop-up";
/// The role of a dialog for files.
const FILES: &[u8] = b"GtkFileChooserDialog";
/// The name of the window manager.
const NAME: &[u8] = b"Casement";
/// The values of `WM_STATE`.
const STATES: [u32; 3] = [0, 1, 3];

atom_manager! {
    /// The names that the window manager uses.
    pub(super) Atoms: AtomsCookie {
        WM_S0,
        WM_STATE,
        WM_CHANGE_STATE,
        WM_PROTOCOLS,
        WM_TAKE_FOCUS,
        WM_DELETE_WINDOW,
        WM_WINDOW_ROLE,
        UTF8_STRING,
        _CASEMENT_SETTLE,
        _NET_SUPPORTED,
        _NET_SUPPORTING_WM_CHECK,
        _NET_CLIENT_LIST,
        _NET_CLIENT_LIST_STACKING,
        _NET_ACTIVE_WINDOW,
        _NET_CLOSE_WINDOW,
        _NET_REQUEST_FRAME_EXTENTS,
        _NET_FRAME_EXTENTS,
        _NET_WM_NAME,
        _NET_WM_USER_TIME,
        _NET_WM_WINDOW_TYPE,
        _NET_WM_WINDOW_TYPE_NORMAL,
        _NET_WM_WINDOW_TYPE_DIALOG,
        _NET_WM_STATE,
        _NET_WM_STATE_MAXIMIZED_HORZ,
        _NET_WM_STATE_MAXIMIZED_VERT,
        _NET_WM_STATE_FULLSCREEN,
        _NET_WM_STATE_HIDDEN,
        _NET_WM_STATE_MODAL,
    }
}

/// The kinds of windows that are placed differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A window of Chromium with tabs.
    Tabbed,
    /// A dialog, which appears in the middle of its window.
    Dialog,
    /// A dialog for files.
    Files,
    /// Another window of Chromium with pages.
    PopUp,
    /// Any other window: bubbles, other programs.
    Other,
}

/// The state of a window as `WM_STATE` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visibility {
    Withdrawn,
    Normal,
    Minimized,
}

/// What a window says of itself before it is shown.
#[derive(Debug)]
pub(super) struct Wishes {
    pub(super) kind: Kind,
    pub(super) parent: Option<Window>,
    /// The names in `_NET_WM_STATE`.
    pub(super) states: Vec<u32>,
    /// False if the window is to appear without the keyboard focus.
    pub(super) focus: bool,
    /// True if the window wants a message with the focus.
    pub(super) take_focus: bool,
}

/// The properties of windows.
#[derive(Debug)]
pub(super) struct Hints {
    pub(super) atoms: Atoms,
    root: Window,
    check: Window,
}

impl Hints {
    /// Announces the window manager on the display.
    pub(super) fn announce(connection: &RustConnection, root: Window) -> Result<Self> {
        let atoms = Atoms::new(connection)?.reply()?;
        let check = connection.generate_id()?;
        let aux = CreateWindowAux::new().override_redirect(1);
        connection.create_window(0, check, root, -1, -1, 1, 1, 0, WindowClass::INPUT_ONLY, 0, &aux)?;
        connection.map_window(check)?;
        connection.set_selection_owner(check, atoms.WM_S0, x11rb::CURRENT_TIME)?;
        let hints = Self { atoms, root, check };
        for window in [root, check] {
            hints.set(connection, window, atoms._NET_SUPPORTING_WM_CHECK, AtomEnum::WINDOW.into(), &[check])?;
        }
        connection.change_property8(PropMode::REPLACE, check, atoms._NET_WM_NAME, atoms.UTF8_STRING, NAME)?;
        let supported = [
            atoms._NET_SUPPORTED,
            atoms._NET_SUPPORTING_WM_CHECK,
            atoms._NET_CLIENT_LIST,
            atoms._NET_CLIENT_LIST_STACKING,
            atoms._NET_ACTIVE_WINDOW,
            atoms._NET_CLOSE_WINDOW,
            atoms._NET_REQUEST_FRAME_EXTENTS,
            atoms._NET_FRAME_EXTENTS,
            atoms._NET_WM_USER_TIME,
            atoms._NET_WM_WINDOW_TYPE,
            atoms._NET_WM_WINDOW_TYPE_NORMAL,
            atoms._NET_WM_WINDOW_TYPE_DIALOG,
            atoms._NET_WM_STATE,
            atoms._NET_WM_STATE_MAXIMIZED_HORZ,
            atoms._NET_WM_STATE_MAXIMIZED_VERT,
            atoms._NET_WM_STATE_FULLSCREEN,
            atoms._NET_WM_STATE_HIDDEN,
            atoms._NET_WM_STATE_MODAL,
        ];
        hints.set(connection, root, atoms._NET_SUPPORTED, AtomEnum::ATOM.into(), &supported)?;
        Ok(hints)
    }

    pub(super) fn check(&self) -> Window {
        self.check
    }

    fn set(&self, connection: &RustConnection, window: Window, name: u32, kind: u32, words: &[u32]) -> Result<()> {
        Ok(connection.change_property32(PropMode::REPLACE, window, name, kind, words).map(drop)?)
    }

    /// Reads what a window says of itself.
    pub(super) fn wishes(&self, connection: &RustConnection, window: Window) -> Result<Wishes> {
        let atoms = &self.atoms;
        let read = |name: u32| connection.get_property(false, window, name, AtomEnum::ANY, 0, MAX_WORDS);
        let (kind, role, parent) =
            (read(atoms._NET_WM_WINDOW_TYPE)?, read(atoms.WM_WINDOW_ROLE)?, read(AtomEnum::WM_TRANSIENT_FOR.into())?);
        let (states, time, protocols) =
            (read(atoms._NET_WM_STATE)?, read(atoms._NET_WM_USER_TIME)?, read(atoms.WM_PROTOCOLS)?);
        let words = |reply: x11rb::protocol::xproto::GetPropertyReply| -> Vec<u32> {
            reply.value32().map(Iterator::collect).unwrap_or_default()
        };
        let (kind, role, parent) = (words(kind.reply()?), role.reply()?.value, words(parent.reply()?));
        let parent = parent.first().copied().filter(|parent| *parent != 0 && *parent != window);
        let kind = match kind.first() {
            _ if role == FILES => Kind::Files,
            Some(kind) if *kind == atoms._NET_WM_WINDOW_TYPE_DIALOG => Kind::Dialog,
            _ if role == TABBED => Kind::Tabbed,
            _ if role == POP_UP => Kind::PopUp,
            _ => Kind::Other,
        };
        Ok(Wishes {
            kind,
            parent,
            states: words(states.reply()?),
            focus: words(time.reply()?).first() != Some(&0),
            take_focus: words(protocols.reply()?).contains(&atoms.WM_TAKE_FOCUS),
        })
    }

    /// Says what became of a window: its visibility, and the states of `_NET_WM_STATE`.
    pub(super) fn report(
        &self,
        connection: &RustConnection,
        window: Window,
        seen: Visibility,
        states: &[u32],
    ) -> Result<()> {
        let (atoms, state) = (&self.atoms, STATES[seen as usize]);
        self.set(connection, window, atoms.WM_STATE, atoms.WM_STATE, &[state, 0])?;
        self.set(connection, window, atoms._NET_WM_STATE, AtomEnum::ATOM.into(), states)
    }

    /// Says that a window has no frame.
    pub(super) fn report_frame(&self, connection: &RustConnection, window: Window) -> Result<()> {
        self.set(connection, window, self.atoms._NET_FRAME_EXTENTS, AtomEnum::CARDINAL.into(), &[0; 4])
    }

    /// Lists the windows, the lowest first, and the active one.
    pub(super) fn list(&self, connection: &RustConnection, windows: &[u32], active: Option<Window>) -> Result<()> {
        let atoms = &self.atoms;
        for name in [atoms._NET_CLIENT_LIST, atoms._NET_CLIENT_LIST_STACKING] {
            self.set(connection, self.root, name, AtomEnum::WINDOW.into(), windows)?;
        }
        let active = [active.unwrap_or(0)];
        self.set(connection, self.root, atoms._NET_ACTIVE_WINDOW, AtomEnum::WINDOW.into(), &active)
    }

    /// Sends a window a message of `WM_PROTOCOLS`.
    pub(super) fn send(&self, connection: &RustConnection, window: Window, protocol: u32) -> Result<()> {
        let message =
            ClientMessageEvent::new(32, window, self.atoms.WM_PROTOCOLS, [protocol, x11rb::CURRENT_TIME, 0, 0, 0]);
        Ok(connection.send_event(false, window, EventMask::NO_EVENT, message).map(drop)?)
    }
}
