//! Integration tests of sandboxes with the real kernel and the real bubblewrap. They need only Debian's base system
//! and bubblewrap; as root, every test also runs as an ordinary user.

mod isolation;
mod lifetime;
mod limits;
mod ordinary_user;
mod places;
mod remains;
mod sockets;
mod support;
