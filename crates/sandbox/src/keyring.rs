//! The session keyring of the process.
//!
//! The session keyring is inherited like the environment, across namespaces. Without a separate keyring, every sandbox
//! could read the keys of the user who started the server, and sandboxes could pass keys to each other.

use std::io;

use keyutils::Keyring;

/// Joins a new session keyring for this thread and for all threads and programs that it starts from now on. Must be
/// called before other threads exist, because they retain their keyrings.
///
/// A kernel without keyrings, a filter that refuses the call, and an exhausted quota are only logged. With the first
/// two, no keys can be read. The quota is shared by all sandboxes of a user, so one of them could prevent the start of
/// others.
///
/// # Errors
/// Any other refusal of the kernel.
pub fn leave_session_keyring() -> io::Result<()> {
    match Keyring::join_anonymous_session() {
        Ok(_) => Ok(()),
        Err(refused) => tolerate(io::Error::from_raw_os_error(refused.0)),
    }
}

fn tolerate(refused: io::Error) -> io::Result<()> {
    let tolerable = [rustix::io::Errno::NOSYS, rustix::io::Errno::PERM, rustix::io::Errno::DQUOT];
    if tolerable.iter().any(|errno| refused.raw_os_error() == Some(errno.raw_os_error())) {
        tracing::warn!(%refused, "cannot leave the inherited session keyring");
        return Ok(());
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use keyutils::{SpecialKeyring, keytypes::User};

    use super::*;

    /// Returns the number of keys in this thread's session keyring.
    fn held() -> usize {
        let session = Keyring::attach(SpecialKeyring::Session).unwrap();
        session.read().unwrap().0.len()
    }

    #[test]
    fn a_key_of_the_starter_is_out_of_reach_afterwards() {
        // Each thread has its own keyrings and inherits the session keyring of its starter.
        let starter = std::thread::spawn(|| {
            let mut session = Keyring::join_anonymous_session().unwrap();
            let key = session.add_key::<User, _, _>("casement-test", b"secret".as_slice()).unwrap();
            let inherited = std::thread::spawn(held).join().unwrap();
            let left = std::thread::spawn(move || {
                leave_session_keyring().unwrap();
                let search = Keyring::attach(SpecialKeyring::Session).unwrap();
                (held(), search.search_for_key::<User, _, _>("casement-test", None).is_err())
            });
            let left = left.join().unwrap();
            assert_eq!(key.read().unwrap(), b"secret", "the starter still has it");
            (inherited, left)
        });
        assert_eq!(starter.join().unwrap(), (1, (0, true)));
    }

    #[test]
    fn only_a_kernel_that_knows_no_keyrings_or_a_limit_is_no_obstacle() {
        for (errno, tolerated) in [(rustix::io::Errno::NOSYS, true), (rustix::io::Errno::NOMEM, false)] {
            assert_eq!(tolerate(errno.into()).is_ok(), tolerated, "{errno}");
        }
    }
}
