// Records <-> rows: the column lists and the binding order, next to each other so that they cannot drift apart.
#pragma once

#include <string>

#include "base/result.h"
#include "store/records.h"
#include "store/sqlite_db.h"

namespace sandbar::store {

// Column lists in binding order, without the row number.
extern const std::string kSandboxColumns;
extern const std::string kSessionColumns;
extern const std::string kCommandColumns;
extern const std::string kSnapshotColumns;
extern const std::string kDriveColumns;
extern const std::string kKeyColumns;
// "?, ?, …" and "a = ?, b = ?, …" for a column list.
std::string Placeholders(const std::string& columns);
std::string Assignments(const std::string& columns);

void Bind(Query& q, const Sandbox& s);
void Bind(Query& q, const Session& s);
void Bind(Query& q, const Command& c);
void Bind(Query& q, const Snapshot& s);
void Bind(Query& q, const Drive& d);
void Bind(Query& q, const Key& k);

// `first` is the index of the record's first column.
Result<Sandbox> ReadSandbox(const Query& q, int first = 0);
Result<Session> ReadSession(const Query& q, int first = 0);
Result<Command> ReadCommand(const Query& q, int first = 0);
Result<Snapshot> ReadSnapshot(const Query& q, int first = 0);
Result<Drive> ReadDrive(const Query& q, int first = 0);
Result<Key> ReadKey(const Query& q, int first = 0);

}  // namespace sandbar::store
