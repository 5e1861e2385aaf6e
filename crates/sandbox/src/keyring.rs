//! The session keyring of the process.
//!
//! It is inherited like an environment, and no namespace is between: without a step of our own, whatever keys the person
//! who started the server keeps in it could be read in every sandbox, and all sandboxes could leave each other keys.

use std::io;

use keyutils::Keyring;

/// Joins a new session keyring that nobody else has, for this thread and for all threads and programs started by it
/// from now on. To be called before there are other threads, which keep theirs.
///
/// A kernel without keyrings, a filter that refuses the call and a used-up quota are no obstacle, only told: the first
/// two leave nothing to read, and the last must not let one sandbox keep others of the same user from starting.
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
        tracing::warn!(%refused, "the session keyring of whoever started this is kept");
        return Ok(());
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use keyutils::{SpecialKeyring, keytypes::User};

    use super::*;

    /// The keys that this thread's session keyring holds.
    fn held() -> usize {
        let session = Keyring::attach(SpecialKeyring::Session).unwrap();
        session.read().unwrap().0.len()
    }

    #[test]
    fn a_key_of_the_starter_is_out_of_reach_afterwards() {
        // Threads have keyrings of their own, and a session is inherited by those that are started.
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
