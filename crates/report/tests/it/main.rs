//! The results of a race, from a generated record to the summary, the table and the JSON.

#[cfg(test)]
mod by_cpu;
mod cards;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod exact;
#[cfg(test)]
mod goldens;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod late;
#[cfg(test)]
mod lost;
#[cfg(test)]
mod made;
mod method;
#[cfg(test)]
mod missing;
#[cfg(test)]
mod oldest;
#[cfg(test)]
mod pairs;
#[cfg(test)]
mod past;
#[cfg(test)]
mod profile;
#[cfg(test)]
mod published;
#[cfg(test)]
mod spun;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod sweep;
#[cfg(test)]
mod tail;
#[cfg(test)]
mod timeline;
#[cfg(test)]
mod unanswered;
#[cfg(test)]
mod until;
#[cfg(test)]
mod verdicts;
#[cfg(test)]
mod witnessed;
