//! The TLS of one connection, between its bytes and what they mean.

use std::io::{ErrorKind, Read, Write};

use rustls::ServerConnection;

/// A TLS session, the server's side.
#[derive(Debug)]
pub(super) struct Session(ServerConnection);

/// Whether more may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opened {
    MayGoOn,
    /// The peer announced the end of its data.
    Ended,
}

impl Session {
    pub(super) fn new(mut connection: ServerConnection) -> Session {
        // The caller limits unsent data, by not reading more.
        connection.set_buffer_limit(None);
        Session(connection)
    }

    /// Takes what came, and appends what it means. An alert for the peer may be left to be sealed after an error.
    pub(super) fn open(&mut self, mut records: &[u8], plain: &mut Vec<u8>) -> Result<Opened, rustls::Error> {
        let mut opened = Opened::MayGoOn;
        while !records.is_empty() && opened == Opened::MayGoOn {
            // The input is in memory, and the session's own buffer is emptied each time, so that it always has room.
            self.0.read_tls(&mut records).map_err(|error| rustls::Error::General(error.to_string()))?;
            self.0.process_new_packets()?;
            match self.0.reader().read_to_end(plain) {
                Ok(_) => opened = Opened::Ended,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(rustls::Error::General(error.to_string())),
            }
        }
        Ok(opened)
    }

    /// What has to be sent so that the peer gets the output, and what the handshake needs.
    pub(super) fn seal(&mut self, output: &[u8]) -> Vec<u8> {
        self.0.writer().write_all(output).expect("memory without a limit takes all");
        self.records()
    }

    /// What has to be sent so that the peer knows that no more comes.
    pub(super) fn close(&mut self) -> Vec<u8> {
        self.0.send_close_notify();
        self.records()
    }

    fn records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut records).expect("memory without a limit takes all");
        }
        records
    }
}
