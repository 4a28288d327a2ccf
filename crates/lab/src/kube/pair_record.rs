//! What is written down of a pair of nodes while it races.

use std::path::{Path, PathBuf};
use std::time::Instant;

use record::{Header, NodePair, Writer};

use super::cluster_setup::ClusterSetup;
use super::schedule::Places;
use crate::race::{Finished, concluded};
use crate::{Event, LabError};

/// What became of a pair.
#[derive(Debug)]
pub struct PairResult {
    /// The client's and the server's node.
    pub pair: NodePair,
    /// Its record. It is not there if the pair failed before its first round.
    pub record: PathBuf,
    /// How it ended. Finished rounds are in the record in all cases.
    pub result: Result<Finished, LabError>,
}

/// What is written down of a pair, until its end.
pub(super) struct PairRecord<'c> {
    setup: &'c ClusterSetup<'c>,
    pub(super) places: Places,
    pair: NodePair,
    /// For messages: "node-1 → node-2".
    pub(super) name: String,
    record: PathBuf,
    started: Instant,
    pub(super) header: Option<Header>,
    /// `None`: it is over.
    writer: Option<Writer>,
    ended: Option<Result<Finished, LabError>>,
}

impl<'c> PairRecord<'c> {
    pub(super) fn begin(
        setup: &'c ClusterSetup<'c>,
        places: Places,
        (dir, file): (&Path, &str),
    ) -> Result<PairRecord<'c>, LabError> {
        let pair = setup.pair(places).recorded();
        let dir = dir.join(format!("{}--{}", pair.client.node, pair.server.node));
        std::fs::create_dir(&dir).map_err(LabError::file("create", &dir))?;
        let record = dir.join(file);
        Ok(PairRecord {
            setup,
            places,
            name: format!("{} → {}", pair.client.node, pair.server.node),
            pair,
            started: Instant::now(),
            header: None,
            writer: Some(Writer::create(&record)?),
            record,
            ended: None,
        })
    }

    /// Does a part of the race, if it is not over; `false` from it: it was asked to stop. An error ends it.
    pub(super) fn go_on(
        &mut self,
        emit: &mut dyn FnMut(Event),
        part: impl FnOnce(&mut Writer, &mut dyn FnMut(Event)) -> Result<bool, LabError>,
    ) {
        let Some(writer) = &mut self.writer else { return };
        match part(writer, emit) {
            Ok(true) => {}
            Ok(false) => self.end(Ok(Finished::Stopped)),
            Err(error) => {
                let error = self.setup.explained(error);
                emit(Event::PairLeft { pair: self.name.clone(), why: error.to_string() });
                self.end(Err(error));
            }
        }
    }

    /// Whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.writer.is_none()
    }

    pub(super) fn end(&mut self, result: Result<Finished, LabError>) {
        if let Some(writer) = self.writer.take() {
            self.ended = Some(concluded(writer, self.started, result));
        }
    }

    pub(super) fn played(self) -> PairResult {
        let result = self.ended.expect("all have ended");
        PairResult { pair: self.pair, record: self.record, result }
    }
}
