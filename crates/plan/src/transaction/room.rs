//! Room on the disk for a journal that is about to grow: a file of that size, which goes when the
//! journal has been written.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use rustix::fs::FallocateFlags;

use super::{LockedStore, TransactionError};
use crate::Plan;

/// Room for the journal of one step, of which the largest, a new number of queues, takes some kilobytes.
const STEP_BYTES: u64 = 16 << 10;
/// Room for the rest: the header, how it ended.
const REST_BYTES: u64 = 64 << 10;

impl LockedStore {
    /// Room for the journal of a plan, before anything is done of it.
    pub(super) fn reserve(&self, plan: &Plan) -> Result<(), TransactionError> {
        let room = STEP_BYTES * plan.steps.len() as u64 + REST_BYTES;
        self.make_room(room).map_err(|why| {
            self.give_up_room();
            TransactionError::NoRoom { path: self.store.root.clone(), why }
        })
    }

    /// Gives it up: what was written by then is all that is to be written.
    pub(super) fn give_up_room(&self) {
        let _ = fs::remove_file(self.room_path());
    }

    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let mut file = File::create(self.room_path())?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // A file system without it: bytes that are written are room as well.
            Err(rustix::io::Errno::OPNOTSUPP) => {
                io::copy(&mut io::Read::take(io::repeat(0), bytes), &mut file)?;
                file.flush()?;
            }
            result => result?,
        }
        file.sync_data()
    }

    pub(super) fn room_path(&self) -> PathBuf {
        self.store.root.join("room")
    }
}
