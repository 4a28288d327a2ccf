//! What this program does on another machine of a race between machines: it answers what [`crate::remote`] asks.
//!
//! It takes the machine for the race and builds there half of each topology: the server's (`standing`), or that of a
//! client which does not lead (`calling`). It takes everything back when it hears nothing more ([`work()`]); if it is
//! killed, a process that outlives it does ([`watch()`]).

mod calling;
mod half;
mod standing;
mod watch;
mod work;

pub(crate) use self::watch::Watching;
pub use self::watch::watch;
pub use self::work::work;
