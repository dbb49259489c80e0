// The handlers of the route table, by file. Each gets a Call that was already matched, checked and scoped, and answers
// once or returns an Error, which api.cc turns into the answer. Loop thread.
//
// Vercel handlers serve v1 and v2..v4 alike: the Call knows the version, vercel/shapes.h spells the difference.
#pragma once

#include "async/task.h"

namespace sandbar::api {

struct Call;

// vercel/sandboxes.cc
Task<> CreateSandbox(Call* call);
Task<> GetSandbox(Call* call);
Task<> ListSandboxes(Call* call);
Task<> UpdateSandbox(Call* call);
Task<> DeleteSandbox(Call* call);
Task<> ForkSandbox(Call* call);

// vercel/sessions.cc
Task<> ListSessions(Call* call);
Task<> GetSession(Call* call);
Task<> StopSession(Call* call);
Task<> ExtendTimeout(Call* call);
Task<> SetNetworkPolicy(Call* call);

// native/ports.cc
Task<> MakeRouteToken(Call* call);
Task<> RemoveRouteToken(Call* call);
Task<> ForwardPort(Call* call);

// vercel/commands.cc
Task<> StartCommand(Call* call);
Task<> ListCommands(Call* call);
Task<> GetCommand(Call* call);
Task<> StreamLogs(Call* call);
Task<> KillCommand(Call* call);

// vercel/files.cc
Task<> ReadFile(Call* call);
Task<> WriteFiles(Call* call);
Task<> MakeDir(Call* call);

// vercel/snapshots.cc
Task<> TakeSnapshot(Call* call);
Task<> ListSnapshots(Call* call);
Task<> GetSnapshot(Call* call);
Task<> DeleteSnapshot(Call* call);
Task<> GetSnapshotTree(Call* call);

// vercel/interactive.cc
Task<> OpenInteractive(Call* call);
Task<> ServeTerminal(Call* call);

// native/commands.cc
Task<> NativeStartCommand(Call* call);
Task<> NativeFollowOutput(Call* call);
Task<> NativeGetInput(Call* call);
Task<> NativeWriteInput(Call* call);
Task<> NativeResize(Call* call);

// vercel/drives.cc
Task<> ListDrives(Call* call);
Task<> MakeDrive(Call* call);
Task<> DeleteDrive(Call* call);

// vercel/account.cc
Task<> GetUser(Call* call);
Task<> ListTeams(Call* call);
Task<> GetTeam(Call* call);
Task<> GetProject(Call* call);
Task<> CreateProject(Call* call);

// vercel/login.cc
Task<> OAuthMetadata(Call* call);
Task<> StartLogin(Call* call);
Task<> PollLogin(Call* call);
Task<> Logout(Call* call);
Task<> IntrospectToken(Call* call);
Task<> LoginPage(Call* call);

// native/network.cc
Task<> NativeNetworkLog(Call* call);
Task<> NativeNetworkSuggest(Call* call);
Task<> NativeNetworkTest(Call* call);

// native/code.cc
Task<> RunCode(Call* call);
Task<> ListContexts(Call* call);
Task<> CreateContext(Call* call);
Task<> DeleteContext(Call* call);
Task<> InterruptContext(Call* call);
Task<> RestartContext(Call* call);

// native/server.cc
Task<> Health(Call* call);
Task<> Jwks(Call* call);
Task<> NativeInfo(Call* call);
Task<> NativeRoutes(Call* call);
Task<> NativeImages(Call* call);
Task<> NativeInspect(Call* call);
Task<> NativeDenials(Call* call);

// native/usage.cc
Task<> NativeUsage(Call* call);

// native/memory.cc
Task<> NativePause(Call* call);
Task<> NativeResume(Call* call);

// native/keys.cc
Task<> NativeCreateKey(Call* call);
Task<> NativeListKeys(Call* call);
Task<> NativeRotateKey(Call* call);
Task<> NativeRevokeKey(Call* call);

// native/files.cc
Task<> NativeListFiles(Call* call);
Task<> NativeStatFile(Call* call);
Task<> NativeReadFile(Call* call);
Task<> NativeWriteFile(Call* call);
Task<> NativeSetFileAttributes(Call* call);
Task<> NativeRenameFile(Call* call);
Task<> NativeRemoveFile(Call* call);
Task<> NativeMakeLink(Call* call);
Task<> NativeMakeDirectory(Call* call);

// native/logins.cc
Task<> NativeGetLogin(Call* call);
Task<> NativeApproveLogin(Call* call);
Task<> NativeDenyLogin(Call* call);

// native/snapshots.cc
Task<> NativeVerifySnapshot(Call* call);
Task<> NativeNotices(Call* call);
Task<> NativeDiff(Call* call);
Task<> NativePromote(Call* call);
Task<> NativeRace(Call* call);

// mcp/endpoint.cc
Task<> Mcp(Call* call);

// native/sdk.cc
Task<> SdkRegister(Call* call);
Task<> SdkEnv(Call* call);
Task<> SdkPython(Call* call);
Task<> LlmsText(Call* call);
Task<> OpenApi(Call* call);

}  // namespace sandbar::api
