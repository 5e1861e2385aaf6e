//! Announces a new keyboard, so that programs read the symbols of its keys again.
//!
//! Chromium reads the symbols of the keys when a new keyboard is announced, and ignores changes of single keys: its
//! pages would receive a key without a name, and shortcuts of Control with this key would have no effect. The X server
//! announces a new keyboard, among other occasions, when the geometry of the keyboard changes. Therefore a new geometry
//! is set.

use std::io::IoSlice;

use x11rb::connection::RequestConnection as _;
use x11rb::protocol::xkb::{self, ConnectionExt as _, ID};

use crate::display::DisplayError;
use crate::x11::X11;

/// The opcode of `SetGeometry`, which the bindings lack.
const SET_GEOMETRY: u8 = 20;
/// The smallest valid geometry: no name, 1 mm by 1 mm, the two colours that are required, one shape of one point.
const SHAPE: &[u8] = &[
    1, 0, // shapes, sections
    0, 0, 0, 0, // name
    1, 0, 1, 0, // size
    0, 0, 2, 0, 0, 0, 0, 0, // properties, colours, doodads, aliases
    0, 1, 0, 0, // base colour, colour of the labels
    1, 0, b'f', 0, // font of the labels
    1, 0, b'0', 0, 1, 0, b'1', 0, // colours
    1, 0, 0, 0, 1, 0xff, 0xff, 0, // the shape: name, number of outlines, no primary and no approximate outline
    1, 0, 0, 0, 0, 0, 0, 0, // its outline: points, corners
];

/// Sets a new geometry, so that the X server announces a new keyboard.
pub(super) fn announce(x11: &X11) -> Result<(), DisplayError> {
    let connection = &x11.connection;
    let extension = connection.extension_information(xkb::X11_EXTENSION_NAME).map_err(DisplayError::x)?;
    let extension = extension.ok_or_else(|| DisplayError::x("the display's keyboard has no symbols to give"))?;
    connection.xkb_use_extension(1, 0).map_err(DisplayError::x)?.reply().map_err(DisplayError::x)?;
    let [low, high] = u16::from(ID::USE_CORE_KBD).to_le_bytes();
    let words = (SHAPE.len() + 6).div_ceil(4);
    let [length_low, length_high] = u16::try_from(words).map_err(DisplayError::x)?.to_le_bytes();
    let head = [extension.major_opcode, SET_GEOMETRY, length_low, length_high, low, high];
    let sent = connection.send_request_without_reply(&[IoSlice::new(&head), IoSlice::new(SHAPE)], Vec::new());
    sent.map_err(DisplayError::x)?.check().map_err(DisplayError::x)
}
